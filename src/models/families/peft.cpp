// Adapter files as PEFT has them: github.com/huggingface/peft, src/peft/utils/save_and_load.py.
#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/process_memory.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "models/families/binding.h"
#include "models/families/labels.h"
#include "models/families/lora.h"
#include "models/families/pretrained.h"

namespace linnet {
namespace {
constexpr const char *kConfigName = "adapter_config.json", *kWeightsName = "adapter_model.safetensors",
                     *kPickledName = "adapter_model.bin";
constexpr const char* kBase = "base_model.model.";
// Metadata of a classifier's weights: a JSON list of names, and what models/families/labels.h has.
constexpr const char *kClassesEntry = "linnet.classes", *kProblemEntry = "linnet.problem_type",
                     *kPairsEntry = "linnet.text_pairs", *kNoAnswerEntry = "linnet.may_lack_answers";
constexpr const char *kClassifier = "SEQ_CLS", *kTokenClassifier = "TOKEN_CLS",
                     *kAnswers = "QUESTION_ANS";  // "task_type", in PEFT's words

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::unique_ptr<const TensorFile> open_adapters(const std::string& folder) {
  const std::string path = path_in(folder, kWeightsName), pickled = path_in(folder, kPickledName);
  return open_tensor_file(!file_exists(path) && file_exists(pickled) ? pickled : path);
}

std::optional<ModelHead> head_of_adapters(const ConfigFile& config) {  // empty: none
  const std::string task = config.text("task_type", "");
  if (task == kClassifier) return ModelHead::kClasses;
  if (task == kTokenClassifier) return ModelHead::kTokenClasses;
  if (task == kAnswers) return ModelHead::kSpans;
  return std::nullopt;
}

// Without a head, modules have no prefix, unlike the family's tables.
std::string peft_name(const PretrainedModel& model, const std::string& tensor) {
  const std::string& prefix = model.names.prefix;
  const bool bare = model.head == ModelHead::kNone && tensor.starts_with(prefix);
  return kBase + (bare ? tensor.substr(prefix.size()) : tensor);
}

bool classifies_texts(const PretrainedModel& model) {
  return model.family->kind == FamilyKind::kEncoder &&
         (model.head == ModelHead::kClasses || model.head == ModelHead::kTokenClasses ||
             model.head == ModelHead::kSpans);
}

// Adapters, and heads trained beside them: those of a classifier, which begin with random values.
bool is_in_file(const PretrainedModel& model, const NameRow& row) {
  if (row.role == TensorRole::kAdapter) return true;
  return row.role == TensorRole::kHead && classifies_texts(model);
}

const char* task_type(const PretrainedModel& model) {
  if (model.head == ModelHead::kNone) return "FEATURE_EXTRACTION";
  if (classifies_texts(model))
    return model.head == ModelHead::kTokenClasses ? kTokenClassifier
           : model.head == ModelHead::kSpans      ? kAnswers
                                                  : kClassifier;
  if (model.head != ModelHead::kTokens) return nullptr;
  if (model.family->kind == FamilyKind::kEncoderDecoder) return "SEQ_2_SEQ_LM";
  return model.family->kind == FamilyKind::kDecoder ? "CAUSAL_LM" : nullptr;
}

ConfigFile adapter_config(const PretrainedModel& model, const std::string& base) {
  const LoraOptions& lora = *model.lora;
  std::vector<std::string> heads;
  for (const NameRow& row : model.names.rows)
    if (row.role == TensorRole::kHead && is_in_file(model, row) && row.tensor.ends_with(".weight")) {
      std::string module = row.tensor.substr(0, row.tensor.size() - 7);
      if (module.starts_with(model.names.prefix)) module = module.substr(model.names.prefix.size());
      // PEFT always trains a classifier's "classifier", and cannot take its layers too.
      if (module.starts_with("classifier.")) module = "classifier";
      if (heads.empty() || heads.back() != module) heads.push_back(module);
    }
  ConfigFile config;
  config.set("peft_type", "LORA");
  if (const char* type = task_type(model)) config.set("task_type", type);
  else config.set_null("task_type");
  config.set("base_model_name_or_path", base);
  config.set("r", lora.rank);
  config.set("lora_alpha", lora.alpha);
  config.set("lora_dropout", 0.0);
  config.set("use_rslora", lora.rank_stabilized);
  config.set("bias", "none");
  config.set("fan_in_fan_out", std::ranges::count(model.names.rows, TensorForm::kTransposed, &NameRow::form) > 0);
  if (lora.targets == std::vector<std::string>{"all-linear"}) config.set("target_modules", "all-linear");
  else config.set("target_modules", lora.targets);
  if (heads.empty()) config.set_null("modules_to_save");
  else config.set("modules_to_save", heads);
  config.set("inference_mode", true);
  return config;
}

// The set without a name, if others have one. Users cannot give this name.
constexpr const char* kUnnamedSet = "default+";

std::string set_name(const AdapterFolder& adapter) { return adapter.name.empty() ? kUnnamedSet : adapter.name; }

PretrainedModel open_with_sets(
    const std::string& folder, const std::vector<AdapterFolder>& adapters, const OpenOptions& options) {
  PretrainedModel model = open_pretrained(folder, options);
  for (size_t i = 0; i < adapters.size(); ++i)
    add_adapter_set(model, read_adapter_options(adapters[i].folder), static_cast<int64_t>(i), set_name(adapters[i]));
  return model;
}

// Reads what save_adapters() wrote with a classifier's adapters; PEFT has no field for it.
void name_classes(PretrainedModel& model, const std::string& adapters) {
  const std::unique_ptr<const TensorFile> opened = open_adapters(adapters);
  const TensorFile& file = *opened;
  const auto found = file.metadata().find(kClassesEntry);
  if (found == file.metadata().end()) return;
  const Json names = Json::parse_or_null(found->second, JsonLimits::settings());
  if (!names.is_array() || static_cast<int64_t>(names.size()) != label_count(model.config) ||
      !std::ranges::all_of(names, &Json::is_string))
    fail_user(
        "'", file.path(), "': its \"", kClassesEntry, "\" is not a list of ", label_count(model.config), " names");
  name_labels(model.config, names.get<std::vector<std::string>>());
  if (const auto type = file.metadata().find(kProblemEntry); type != file.metadata().end())
    set_problem_type(model.config, type->second);
  set_pairs(model.config, file.metadata().contains(kPairsEntry));
  if (file.metadata().contains(kNoAnswerEntry)) set_may_lack_answers(model.config);
}

// The classifier that was trained with the adapters, and its number of classes.
OpenOptions options_for(const std::string& adapters, OpenOptions options) {
  options.lora = read_adapter_options(adapters);
  const ConfigFile config(path_in(adapters, kConfigName));
  if (options.head || !options.architecture.empty()) return options;
  options.head = head_of_adapters(config);
  if (!options.head) return options;
  const std::unique_ptr<const TensorFile> opened = open_adapters(adapters);
  const TensorFile& file = *opened;
  for (const char* name : {"classifier.weight", "classifier.out_proj.weight"})
    if (const TensorEntry* head = file.find(std::string(kBase) + name))
      options.labels = head->type.shape.rank() == 2 ? head->type.shape[0] : 0;
  return options;
}
}  // namespace

LoraOptions read_adapter_options(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'");
  const ConfigFile config(path_in(folder, kConfigName));
  config.choice("peft_type", {"LORA"});
  config.choice("bias", {"none"});
  config.require_flag("use_dora", false);
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (config.count(key) > 0) config.fail("\"", key, "\" is not supported: one rank and alpha for all");
  for (const char* key : {"layers_to_transform", "layer_replication", "trainable_token_indices", "target_parameters"})
    if (config.has(key) && !config.is_empty(key)) config.fail("\"", key, "\" is not supported");
  LoraOptions options{.rank = config.size("r", 8), .alpha = config.number("lora_alpha", 8)};
  options.rank_stabilized = config.flag("use_rslora", false);
  if (config.is_text("target_modules")) {
    if (config.text("target_modules") != "all-linear")
      config.fail("\"target_modules\" is a pattern; Linnet reads a list of names, or \"all-linear\"");
    options.targets = {"all-linear"};
  } else {
    options.targets = config.texts("target_modules");
    if (options.targets.empty()) config.fail("\"target_modules\" names no layers");
  }
  return options;
}

std::vector<AdapterFolder> parse_adapters(const std::vector<std::string>& words) {
  std::vector<AdapterFolder> adapters;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const bool named = equals != std::string::npos && !file_exists(word);
    AdapterFolder adapter{named ? word.substr(0, equals) : "", named ? word.substr(equals + 1) : word};
    const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
    if (adapter.name == kNoAdapter) fail_user("--adapter ", word, ": \"none\" stands for the model without adapters");
    if (named && (adapter.name.empty() || !std::ranges::all_of(adapter.name, fits)))
      fail_user("--adapter ", word, ": a name consists of letters, digits, '_' and '-'");
    if (adapter.folder.empty()) fail_user("--adapter ", word, " names no folder");
    if (std::ranges::any_of(adapters, [&](const AdapterFolder& other) { return other.name == adapter.name; }))
      fail_user(named ? "--adapter: there are two with the name " + adapter.name
                      : "--adapter: of several folders at most one has no name; write NAME=FOLDER");
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

bool are_chosen(const std::vector<AdapterFolder>& adapters) {
  return std::ranges::any_of(adapters, [](const AdapterFolder& adapter) { return !adapter.name.empty(); });
}

bool are_classifiers(const std::vector<AdapterFolder>& adapters) {
  return adapters.size() == 1 && head_of_adapters(ConfigFile(path_in(adapters[0].folder, kConfigName))).has_value();
}

void refuse_names(const std::vector<AdapterFolder>& adapters) {
  if (are_chosen(adapters))
    fail_user(
        "--adapter NAME=FOLDER is for models that go on from a prompt; for others give one folder without a name");
}

int64_t find_adapter(const std::vector<AdapterFolder>& adapters, const std::string& name, const std::string& where) {
  if (name == kNoAdapter && (are_chosen(adapters) || adapters.empty())) return -1;
  if (const auto found = std::ranges::find(adapters, name, &AdapterFolder::name); found != adapters.end())
    return found - adapters.begin();
  if (name.empty()) return -1;
  if (!are_chosen(adapters)) fail_user(where, ": no adapters were given to choose from (--adapter NAME=FOLDER)");
  fail_user(where, ": there are no adapters \"", name, "\"; there are ", joined(adapters, ", ", &AdapterFolder::name),
      ", and none");
}

PretrainedModel open_with_adapters(
    const std::string& folder, const std::vector<AdapterFolder>& adapters, const OpenOptions& options) {
  if (adapters.empty()) return open_pretrained(folder, options);
  PretrainedModel model = are_chosen(adapters) ? open_with_sets(folder, adapters, options)
                                               : open_pretrained(folder, options_for(adapters[0].folder, options));
  model.adapters = adapters;
  const ParameterLayout layout(*model.module);
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  const AdapterFiles files(model, rows);  // checks them
  if (model.lora) name_classes(model, adapters[0].folder);
  return model;
}

// One file and its rows of the name table.
class AdapterFile {
 public:
  AdapterFile(const PretrainedModel& model, const std::vector<BoundRow>& rows, const AdapterFolder& adapter)
      : file_(open_adapters(adapter.folder)) {
    const std::string ending = are_chosen(model.adapters) ? "." + set_name(adapter) : "";
    for (const BoundRow& bound : rows) {
      if (!is_in_file(model, *bound.row)) continue;
      const std::string& tensor = bound.row->tensor;
      const bool is_adapter = bound.row->role == TensorRole::kAdapter;
      if (is_adapter && !tensor.ends_with(ending + ".weight")) continue;  // of another set
      const std::string own =
          is_adapter ? tensor.substr(0, tensor.size() - ending.size() - 7) + ".weight" : tensor;  // 7: of ".weight"
      match(bound, peft_name(model, own));
    }
    for (const TensorEntry& entry : file_->entries())
      if (std::ranges::none_of(matched_, [&](const auto& found) { return found.second == &entry; }))
        fail_user("'", file_->path(), "': the model has no place for tensor ", entry.name);
  }

  void read(const ParameterSpec& spec, float* parameters) const {
    for (const auto& [bound, entry] : matched_)
      if (bound->spec == &spec) read_tensor(*bound, entry->dtype, entry->data, parameters);
  }

 private:
  void match(const BoundRow& bound, const std::string& name) {
    const TensorEntry* entry = file_->find(name);
    if (!entry && bound.row->role == TensorRole::kHead) return;
    if (!entry) fail_user("'", file_->path(), "': tensor ", name, " is missing");
    if (entry->type.shape != bound.shape || !is_float(entry->dtype))
      fail_user("'", file_->path(), "': tensor ", name, " is ", entry->text(), ", expected floats of the shape ",
          bound.shape.text());
    matched_.emplace_back(&bound, entry);
  }

  std::unique_ptr<const TensorFile> file_;
  std::vector<std::pair<const BoundRow*, const TensorEntry*>> matched_;
};

AdapterFiles::AdapterFiles(const PretrainedModel& model, const std::vector<BoundRow>& rows) {
  for (const AdapterFolder& adapter : model.adapters) files_.emplace_back(model, rows, adapter);
}

AdapterFiles::~AdapterFiles() = default;

void AdapterFiles::read(const ParameterSpec& spec, float* parameters) const {
  for (const AdapterFile& file : files_) file.read(spec, parameters);
}

void save_adapters(const PretrainedModel& model, const ParameterLayout& layout,
    const std::function<void(const ParameterTarget&)>& load, const std::string& base, const std::string& folder) {
  if (!model.lora) fail_user("the run has no adapters: it was not trained with lora.rank");
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::set<std::string> kept;
  for (const BoundRow& bound : rows)
    if (bound.spec && is_in_file(model, *bound.row)) kept.insert(bound.spec->name);
  // Addresses for all parameters; only kept ones have memory.
  const auto values_of_all = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(layout.parameter_count()));
  float* const parameters = values_of_all.get();
  ParameterTarget target = parameters;
  target.finished = [&](const ParameterSlot& slot) {
    if (!kept.contains(slot.spec.name))
      give_back_pages(parameters + slot.offset, static_cast<size_t>(slot.spec.shape.elements()) * sizeof(float));
  };
  load(target);
  std::vector<SafetensorsTensor> tensors;
  std::deque<std::vector<float>> copies;  // of what a file has in another order
  for (const BoundRow& bound : rows) {
    if (!is_in_file(model, *bound.row)) continue;
    const float* values = parameters + bound.offset;
    if (bound.row->form != TensorForm::kSame) {
      std::vector<float>& copy = copies.emplace_back(static_cast<size_t>(bound.shape.elements()));
      write_tensor(bound, parameters, FileDType::kF32, 0, bound.shape.elements(),
          std::as_writable_bytes(std::span(copy)).data());
      values = copy.data();
    }
    tensors.push_back({peft_name(model, bound.row->tensor), {DType::kF32, bound.shape}, values});
  }
  make_directories(folder);
  adapter_config(model, base).save(path_in(folder, kConfigName));
  SafetensorsMetadata metadata{{"format", "pt"}};
  if (classifies_texts(model)) {
    metadata[kClassesEntry] = Json(label_names(model.config)).dump();
    if (const std::string type = problem_type(model.config); !type.empty()) metadata[kProblemEntry] = type;
    if (has_pairs(model.config)) metadata[kPairsEntry] = "true";
    if (may_lack_answers(model.config)) metadata[kNoAnswerEntry] = "true";
  }
  save_safetensors(path_in(folder, kWeightsName), tensors, metadata);
}
}  // namespace linnet

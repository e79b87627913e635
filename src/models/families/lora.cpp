#include "models/families/lora.h"
#include <cctype>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "models/families/binding.h"
#include "models/families/pretrained.h"
#include "models/nn/layers.h"

namespace linnet {
namespace {
constexpr const char *kWeight = ".weight", *kAllLinear = "all-linear";

bool ends_with_name(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

std::string without(const std::string& text, const std::string& ending) {
  return text.substr(0, text.size() - ending.size());
}

// A linear layer of the files: some rows of one here.
struct Target {
  NameRow row;
  Linear* layer;
  std::string module;  // "bert.encoder.layer.0.attention.self.query"
};

std::vector<Target> linear_layers(PretrainedModel& model) {
  std::map<std::string, Linear*> layers;
  model.module->visit([&](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) layers[linear->path()] = linear;
  });
  std::vector<Target> targets;
  for (const NameRow& row : model.names.rows) {
    if (row.role != TensorRole::kRequired || !row.tensor.ends_with(kWeight) || !row.parameter.ends_with(kWeight))
      continue;
    if (Linear* layer = find_or(layers, without(row.parameter, kWeight), nullptr))
      targets.push_back({row, layer, without(row.tensor, kWeight)});
  }
  return targets;
}

std::string part_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The last parts of the layers' names, each once.
std::string names_of(const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& target : targets) {
    const std::string name = part_name(target.module);
    if (!contains(names, name)) names.push_back(name);
  }
  return joined(names);
}

std::vector<Target> chosen(
    const PretrainedModel& model, const std::vector<Target>& layers, const std::vector<std::string>& names) {
  std::vector<Target> result;
  for (const std::string& name : names)
    if (name != kAllLinear &&
        std::ranges::none_of(layers, [&](const Target& layer) { return ends_with_name(layer.module, name); }))
      fail_user("lora.targets: a model of type ", model.family->model_type, " has no linear layer \"", name,
          "\"; it has ", names_of(layers));
  for (const Target& layer : layers)
    if (std::ranges::any_of(
            names, [&](const std::string& name) { return name == kAllLinear || ends_with_name(layer.module, name); }))
      result.push_back(layer);
  return result;
}

// `ending`: ".<name>" for one of several sets.
void add_to_layers(PretrainedModel& model, const LoraOptions& options, int64_t set, const std::string& ending) {
  const std::vector<Target> layers = linear_layers(model);
  for (const Target& target : chosen(model, layers, options.targets)) {
    const Shape& weight = target.layer->weight.spec().shape;
    const int64_t rows = target.row.rows > 0 ? target.row.rows : weight[0], in = weight[1];
    if (options.rank > std::min(rows, in))
      fail_user("lora.rank = ", options.rank, " is above the smaller side of ", target.module, ".weight ",
          Shape{rows, in}.text());
    const std::string part = part_name(target.module) + ending;
    target.layer->low_rank.add(*target.layer, part, target.row.first_row, rows, in, options.rank, options.scale(), set);
    for (const char* side : {".lora_A", ".lora_B"})
      model.names.add(target.module + side + ending + kWeight, target.layer->path() + side + "." + part,
          TensorForm::kSame, TensorRole::kAdapter);
    model.names.rows.back().form = target.row.form == TensorForm::kByHeads ? TensorForm::kByHeads : TensorForm::kSame;
    model.names.rows.back().heads = target.row.heads;  // the rows of lora_B are those of the weight
  }
}

constexpr const char *kConfigName = "adapter_config.json", *kWeightsName = "adapter_model.safetensors",
                     *kPickledName = "adapter_model.bin";
constexpr const char* kBase = "base_model.model.";
// Metadata of a classifier's weights: a JSON list of names, and what models/families/config_file.h has of classifiers.
constexpr const char *kClassesEntry = "linnet.classes", *kProblemEntry = "linnet.problem_type",
                     *kPairsEntry = "linnet.text_pairs", *kNoAnswerEntry = "linnet.may_lack_answers";
// "task_type" of heads of text classifiers, in PEFT's words.
constexpr std::array<std::pair<ModelHead, const char*>, 3> kTaskTypes{
    {{ModelHead::kClasses, "SEQ_CLS"}, {ModelHead::kTokenClasses, "TOKEN_CLS"}, {ModelHead::kSpans, "QUESTION_ANS"}}};

std::unique_ptr<const TensorFile> open_adapters(const std::string& folder) {
  const std::string path = path_in(folder, kWeightsName), pickled = path_in(folder, kPickledName);
  return open_tensor_file(!file_exists(path) && file_exists(pickled) ? pickled : path);
}

std::optional<ModelHead> head_of_adapters(const ConfigFile& config) {  // empty: none
  for (const auto& [head, word] : kTaskTypes)
    if (config.text("task_type", "") == word) return head;
  return std::nullopt;
}

// Without a head, modules have no prefix, unlike the family's tables.
std::string peft_name(const PretrainedModel& model, const std::string& tensor) {
  const std::string& prefix = model.names.prefix;
  const bool bare = model.head == ModelHead::kNone && tensor.starts_with(prefix);
  return kBase + (bare ? tensor.substr(prefix.size()) : tensor);
}

// PEFT's word for the head of a classifier of texts; null: it is none.
const char* classifier_word(const PretrainedModel& model) {
  const auto* row = find_item(kTaskTypes, model.head, &std::pair<ModelHead, const char*>::first);
  return model.family->kind == FamilyKind::kEncoder && row ? row->second : nullptr;
}

// Adapters, and heads trained beside them: those of a classifier, which begin with random values.
bool is_in_file(const PretrainedModel& model, const NameRow& row) {
  if (row.role == TensorRole::kAdapter) return true;
  return row.role == TensorRole::kHead && classifier_word(model);
}

const char* task_type(const PretrainedModel& model) {
  if (model.head == ModelHead::kNone) return "FEATURE_EXTRACTION";
  if (const char* const word = classifier_word(model)) return word;
  if (model.head != ModelHead::kTokens) return nullptr;
  if (model.family->kind == FamilyKind::kEncoderDecoder) return "SEQ_2_SEQ_LM";
  return model.family->kind == FamilyKind::kDecoder ? "CAUSAL_LM" : nullptr;
}

ConfigFile adapter_config(const PretrainedModel& model, const std::string& base) {
  const LoraOptions& lora = *model.lora;
  std::vector<std::string> heads;
  for (const NameRow& row : model.names.rows)
    if (row.role == TensorRole::kHead && is_in_file(model, row) && row.tensor.ends_with(kWeight)) {
      std::string module = without(row.tensor, kWeight);
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
  config.set("fan_in_fan_out", contains(model.names.rows, TensorForm::kTransposed, &NameRow::form));
  const bool has_experts = std::ranges::any_of(
      model.names.rows, [](const NameRow& row) { return row.tensor.find(".experts.") != row.tensor.npos; });
  if (lora.targets != std::vector<std::string>{kAllLinear}) config.set("target_modules", lora.targets);
  else if (!has_experts) config.set("target_modules", kAllLinear);
  else  // PEFT's "all-linear" has the router and the experts, too
    config.set("target_modules", std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"});
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
    add_to_layers(
        model, read_adapter_options(adapters[i].folder), static_cast<int64_t>(i), "." + set_name(adapters[i]));
  return model;
}

// Reads what save_adapters() wrote with a classifier's adapters; PEFT has no field for it.
void name_classes(PretrainedModel& model, const std::string& adapters) {
  const auto file = open_adapters(adapters);
  const auto found = file->metadata().find(kClassesEntry);
  if (found == file->metadata().end()) return;
  const Json names = Json::parse_or_null(found->second, JsonLimits::settings());
  if (!names.is_array() || static_cast<int64_t>(names.size()) != label_count(model.config) ||
      !std::ranges::all_of(names, &Json::is_string))
    fail_user(
        "'", file->path(), "': its \"", kClassesEntry, "\" is not a list of ", label_count(model.config), " names");
  name_labels(model.config, names.get<std::vector<std::string>>());
  if (const auto type = file->metadata().find(kProblemEntry); type != file->metadata().end())
    set_problem_type(model.config, type->second);
  set_pairs(model.config, file->metadata().contains(kPairsEntry));
  if (file->metadata().contains(kNoAnswerEntry)) set_may_lack_answers(model.config);
}

// The classifier that was trained with the adapters, and its number of classes.
OpenOptions options_for(const std::string& adapters, OpenOptions options) {
  options.lora = read_adapter_options(adapters);
  const ConfigFile config(path_in(adapters, kConfigName));
  if (options.head || !options.architecture.empty()) return options;
  options.head = head_of_adapters(config);
  if (!options.head) return options;
  const auto file = open_adapters(adapters);
  for (const char* name : {"classifier.weight", "classifier.out_proj.weight"})
    if (const TensorEntry* head = file->find(std::string(kBase) + name))
      options.labels = head->type.shape.rank() == 2 ? head->type.shape[0] : 0;
  return options;
}
}  // namespace

double LoraOptions::scale() const {
  return alpha / (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

void write_lora_options(const LoraOptions& options, ConfigFile& config) {
  ConfigFile values;
  values.set("rank", options.rank), values.set("alpha", options.alpha);
  values.set("targets", options.targets), values.set("rank_stabilized", options.rank_stabilized);
  config.set(kLoraKey, values);
}

std::optional<LoraOptions> read_lora_options(const ConfigFile& config) {
  if (!config.has(kLoraKey)) return {};
  const ConfigFile values = config.object(kLoraKey);
  return LoraOptions{.rank = values.size("rank"),
      .alpha = values.number("alpha", 16),
      .targets = values.texts("targets"),
      .rank_stabilized = values.flag("rank_stabilized", false)};
}

void add_adapters(PretrainedModel& model, const LoraOptions& options) {
  model.lora = options;
  if (options.targets.empty()) model.lora->targets = {kAllLinear};
  add_to_layers(model, *model.lora, LowRank::kAlways, "");
  write_lora_options(*model.lora, model.config);
}

void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters) {
  if (!model.lora) return;
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::map<std::string, const BoundRow*> by_tensor;
  for (const BoundRow& row : rows) by_tensor[row.row->tensor] = &row;
  const auto scale = static_cast<float>(model.lora->scale());
  for (const BoundRow& a : rows) {
    const std::string& name = a.row->tensor;
    if (a.row->role != TensorRole::kAdapter || !name.ends_with(".lora_A.weight")) continue;
    const std::string module = without(name, ".lora_A.weight");
    const BoundRow &b = *by_tensor.at(module + ".lora_B.weight"), &weight = *by_tensor.at(module + kWeight);
    const int64_t rank = a.shape[0], in = a.shape[1], out = b.shape[0];
    std::vector<double> sum(in);
    for (int64_t row = 0; row < out; ++row) {
      std::ranges::fill(sum, 0);
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t i = 0; i < in; ++i)
          sum[i] += static_cast<double>(parameters[b.offset + row * rank + r]) * parameters[a.offset + r * in + i];
      for (int64_t i = 0; i < in; ++i) parameters[weight.offset + row * in + i] += scale * static_cast<float>(sum[i]);
    }
  }
}

LoraOptions read_adapter_options(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'");
  const ConfigFile config(path_in(folder, kConfigName));
  config.choice("peft_type", {"LORA"});
  config.choice("bias", {"none"});
  config.require_flag("use_dora", false);
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (config.count(key) > 0) config.fail("\"", key, "\" is not supported: one rank and alpha for all");
  // The others, such as PiSSA's, also change the base model's weights whenever PEFT loads the adapter.
  if (config.is_text("init_lora_weights"))
    config.choice("init_lora_weights", {"gaussian", "eva", "orthogonal", "mica"});
  for (const char* key : {"layers_to_transform", "layer_replication", "trainable_token_indices", "target_parameters",
           "alora_invocation_tokens"})
    if (config.has(key) && !config.is_empty(key)) config.fail("\"", key, "\" is not supported");
  LoraOptions options{.rank = config.size("r", 8), .alpha = config.number("lora_alpha", 8)};
  options.rank_stabilized = config.flag("use_rslora", false);
  if (config.is_text("target_modules")) {
    if (config.text("target_modules") != kAllLinear)
      config.fail("\"target_modules\" is a pattern; Linnet reads a list of names, or \"all-linear\"");
    options.targets = {kAllLinear};
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
    if (contains(adapters, adapter.name, &AdapterFolder::name))
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
  if (!are_chosen(adapters)) fail_user(where, ": no adapters were given by a name (--adapter NAME=FOLDER)");
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

AdapterFiles::AdapterFiles(const PretrainedModel& model, const std::vector<BoundRow>& rows) {
  for (const AdapterFolder& adapter : model.adapters) add(model, rows, adapter);
}

AdapterFiles::~AdapterFiles() = default;

void AdapterFiles::add(const PretrainedModel& model, const std::vector<BoundRow>& rows, const AdapterFolder& adapter) {
  const TensorFile& file = *files_.emplace_back(open_adapters(adapter.folder));
  const std::string ending = are_chosen(model.adapters) ? "." + set_name(adapter) : "";
  for (const BoundRow& bound : rows) {
    if (!is_in_file(model, *bound.row)) continue;
    const std::string& tensor = bound.row->tensor;
    const bool is_adapter = bound.row->role == TensorRole::kAdapter;
    if (is_adapter && !tensor.ends_with(ending + kWeight)) continue;  // of another set
    match(bound, file, peft_name(model, is_adapter ? without(tensor, ending + kWeight) + kWeight : tensor));
  }
  for (const TensorEntry& entry : file.entries())
    if (std::ranges::none_of(matched_, [&](const auto& found) { return found.second == &entry; }))
      fail_user("'", file.path(), "': the model has no place for tensor ", entry.name);
}

void AdapterFiles::match(const BoundRow& bound, const TensorFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (!entry && bound.row->role == TensorRole::kHead) return;
  if (!entry) fail_user("'", file.path(), "': tensor ", name, " is missing");
  if (entry->type.shape != bound.shape || !is_float(entry->dtype))
    fail_user("'", file.path(), "': tensor ", name, " is ", entry->text(), ", expected floats of the shape ",
        bound.shape.text());
  matched_.emplace_back(&bound, entry);
}

void AdapterFiles::read(const ParameterSpec& spec, float* parameters) const {
  for (const auto& [bound, entry] : matched_)
    if (bound->spec == &spec) read_tensor(*bound, entry->dtype, entry->data, parameters);
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
      give_back_pages(parameters + slot.offset, float_bytes(slot.spec.shape.elements()));
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
  const OutputFolder made(folder);
  adapter_config(model, base).save(path_in(folder, kConfigName));
  SafetensorsMetadata metadata{{"format", "pt"}};
  if (classifier_word(model)) {
    metadata[kClassesEntry] = Json(label_names(model.config)).dump();
    if (const std::string type = problem_type(model.config); !type.empty()) metadata[kProblemEntry] = type;
    if (has_pairs(model.config)) metadata[kPairsEntry] = "true";
    if (may_lack_answers(model.config)) metadata[kNoAnswerEntry] = "true";
  }
  save_safetensors(path_in(folder, kWeightsName), tensors, metadata);
}
}  // namespace linnet

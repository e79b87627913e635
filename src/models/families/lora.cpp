#include "models/families/lora.h"
#include <cctype>
#include <cstring>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "models/families/binding.h"
#include "models/families/pretrained.h"
#include "models/nn/layers.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
constexpr const char *kWeight = ".weight", *kAllLinear = "all-linear", *kBase = "base_model.model.";
constexpr const char *kLoraA = ".lora_A.weight", *kLoraB = ".lora_B.weight", *kMagnitude = ".lora_magnitude_vector";

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
  int64_t rows, in;    // of its weight
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
    if (Linear* layer = find_or(layers, without(row.parameter, kWeight), nullptr)) {
      const Shape& weight = layer->weight.spec().shape;
      targets.push_back({row, layer, without(row.tensor, kWeight), row.rows > 0 ? row.rows : weight[0], weight[1]});
    }
  }
  return targets;
}

std::string part_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The last parts of the layers' names.
std::string names_of(const std::vector<Target>& targets) {
  std::set<std::string> names;
  for (const Target& target : targets) names.insert(part_name(target.module));
  return joined(names);
}

// Without a head, modules have no prefix, unlike the family's tables.
std::string peft_name(const PretrainedModel& model, const std::string& tensor) {
  const std::string& prefix = model.names.prefix;
  const bool bare = model.head == ModelHead::kNone && tensor.starts_with(prefix);
  return kBase + (bare ? tensor.substr(prefix.size()) : tensor);
}

// Fills options.layers by options.targets. User error listing the layers if one names none.
void choose_layers(PretrainedModel& model, LoraOptions& options) {
  const std::vector<Target> layers = linear_layers(model);
  for (const std::string& name : options.targets) {
    bool is_there = false;
    for (const Target& layer : layers) {
      if (name != kAllLinear && !ends_with_name(layer.module, name)) continue;
      is_there = true;
      if (options.rank > std::min(layer.rows, layer.in))
        fail_user("lora.rank = ", options.rank, " is above the smaller side of ", layer.module, ".weight ",
            Shape{layer.rows, layer.in}.text());
      options.layers[peft_name(model, layer.module)] = {options.rank, options.scale(), false};
    }
    if (!is_there)
      fail_user("lora.targets: a model of type ", model.family->model_type, " has no linear layer \"", name,
          "\"; it has ", names_of(layers));
  }
}

// The table's name of a tensor of adapters' files. Layers with adapters have their own tensors under another name.
std::string own_name(const NameTable& names, std::string name) {
  replace_all(name, ".base_layer.", ".");
  return name.starts_with(kBase) ? kBase + names.current(name.substr(std::strlen(kBase))) : name;
}

std::map<std::string, LoraOptions::Layer> layers_of(const PretrainedModel& model, const LoraOptions& options) {
  std::map<std::string, LoraOptions::Layer> layers;  // by the table's names
  for (const auto& [name, layer] : options.layers)
    layers[without(own_name(model.names, name + kWeight), kWeight)] = layer;
  return layers;
}

// `ending`: ".<name>" for one of several sets.
void add_to_layers(PretrainedModel& model, const LoraOptions& options, int64_t set, const std::string& ending) {
  const std::map<std::string, LoraOptions::Layer> layers = layers_of(model, options);
  for (const Target& target : linear_layers(model)) {
    const auto own = layers.find(peft_name(model, target.module));
    if (own == layers.end() || own->second.has_magnitude) continue;
    const std::string part = part_name(target.module) + ending;
    target.layer->low_rank.add(
        *target.layer, part, target.row.first_row, target.rows, target.in, own->second.rank, options.scale(), set);
    for (const char* side : {".lora_A", ".lora_B"})
      model.names.add(target.module + side + ending + kWeight, target.layer->path() + side + "." + part,
          TensorForm::kSame, TensorRole::kAdapter);
    model.names.rows.back().form = target.row.form == TensorForm::kByHeads ? TensorForm::kByHeads : TensorForm::kSame;
    model.names.rows.back().heads = target.row.heads;  // the rows of lora_B are those of the weight
  }
}

constexpr const char *kConfigName = "adapter_config.json", *kWeightsName = "adapter_model.safetensors",
                     *kPickledName = "adapter_model.bin";
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

// PEFT's word for the head of a classifier of texts; null: it is none.
const char* classifier_word(const PretrainedModel& model) {
  const auto* row = find_item(kTaskTypes, model.head, &std::pair<ModelHead, const char*>::first);
  return model.family->kind == FamilyKind::kEncoder && row ? row->second : nullptr;
}

// Whether save_adapters() writes it: adapters, and the head of a classifier, which begins with random values.
bool is_in_file(const PretrainedModel& model, const NameRow& row) {
  return row.role == TensorRole::kAdapter || (row.role == TensorRole::kHead && classifier_word(model));
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
  const auto name_of = [](const auto& layer) { return layer.first.substr(std::strlen(kBase)); };
  if (lora.targets != std::vector<std::string>{kAllLinear}) config.set("target_modules", lora.targets);
  else config.set("target_modules", mapped(lora.layers, name_of));  // PEFT's "all-linear" has poolers and experts too
  if (heads.empty()) config.set_null("modules_to_save");
  else config.set("modules_to_save", heads);
  config.set("inference_mode", true);
  return config;
}

// The set without a name, if others have one, gets one that users cannot give.
std::string set_name(const AdapterFolder& adapter) { return adapter.name.empty() ? "default+" : adapter.name; }

PretrainedModel open_with_sets(
    const std::string& folder, const std::vector<AdapterFolder>& adapters, const OpenOptions& options) {
  PretrainedModel model = open_pretrained(folder, options);
  for (size_t i = 0; i < adapters.size(); ++i)
    add_to_layers(
        model, read_adapter_options(adapters[i].folder), static_cast<int64_t>(i), "." + set_name(adapters[i]));
  return model;
}

// "alpha_pattern" gives the alpha of some layers, by the ends of their names. PEFT also takes expressions there.
double alpha_of(const ConfigFile& config, const std::string& layer, double otherwise) {
  const ConfigFile pattern = config.object("alpha_pattern");
  for (const std::string& key : pattern.keys()) {
    if (key.find_first_of("*+?[](){}|\\^$") != key.npos)
      config.fail("\"alpha_pattern\" has ", quoted(key), ", and Linnet reads plain names of layers");
    if (ends_with_name(layer, key)) return pattern.number(key, otherwise);
  }
  return otherwise;
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

// The adapters, what was trained in full beside them, and of a classifier its head and number of classes.
OpenOptions options_for(const std::string& adapters, OpenOptions options) {
  options.lora = read_adapter_options(adapters);
  const auto file = open_adapters(adapters);
  for (const TensorEntry& entry : file->entries())
    if (const std::string name = own_name({}, entry.name); name.starts_with(kBase) && name.find(".lora_") == name.npos)
      options.replaced[name.substr(std::strlen(kBase))] = entry.type.shape;
  if (options.head || !options.architecture.empty()) return options;
  options.head = head_of_adapters(ConfigFile(path_in(adapters, kConfigName)));
  if (!options.head) return options;
  for (const char* name : {"classifier.weight", "classifier.out_proj.weight"})
    if (const TensorEntry* head = file->find(std::string(kBase) + name))
      options.labels = head->type.shape.rank() == 2 ? head->type.shape[0] : 0;
  return options;
}
}  // namespace

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
  if (options.layers.empty()) choose_layers(model, *model.lora), write_lora_options(*model.lora, model.config);
  add_to_layers(model, *model.lora, LowRank::kAlways, "");
}

void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters) {
  if (!model.lora) return;
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::map<std::string, const BoundRow*> by_tensor;
  for (const BoundRow& row : rows) by_tensor[row.row->tensor] = &row;
  for (const BoundRow& a : rows) {
    const std::string& name = a.row->tensor;
    if (a.row->role != TensorRole::kAdapter || !name.ends_with(kLoraA)) continue;
    const std::string module = without(name, kLoraA);
    const BoundRow &b = *by_tensor.at(module + kLoraB), &weight = *by_tensor.at(module + kWeight);
    merge_low_rank({b.shape[0], a.shape[1]}, parameters + a.offset, parameters + b.offset, a.shape[0],
        model.lora->scale(), nullptr, parameters + weight.offset);
  }
}

LoraOptions read_adapter_options(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'");
  const ConfigFile config(path_in(folder, kConfigName));
  config.choice("peft_type", {"LORA"});
  // The others, such as PiSSA's, also change the base model's weights whenever PEFT loads the adapter.
  if (config.is_text("init_lora_weights"))
    config.choice("init_lora_weights", {"gaussian", "eva", "orthogonal", "mica"});
  for (const char* key :
      {"layer_replication", "trainable_token_indices", "target_parameters", "alora_invocation_tokens"})
    if (config.has(key) && !config.is_empty(key)) config.fail("\"", key, "\" is not supported");
  LoraOptions options{.rank = config.size("r", 8), .alpha = config.number("lora_alpha", 8)};
  options.rank_stabilized = config.flag("use_rslora", false);
  const auto file = open_adapters(folder);
  for (const TensorEntry& entry : file->entries()) {
    if (!entry.name.ends_with(kLoraA) || entry.type.shape.rank() != 2 || entry.type.shape[0] == 0) continue;
    const std::string layer = without(entry.name, kLoraA);
    LoraOptions own = options;
    own.rank = entry.type.shape[0], own.alpha = alpha_of(config, layer, options.alpha);
    options.layers[layer] = {own.rank, own.scale(), file->find(layer + kMagnitude) != nullptr};
  }
  if (options.layers.empty()) fail_user("'", file->path(), "' has no adapters of linear layers");
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
  if (!contains(model.names.rows, TensorRole::kAdapter, &NameRow::role) && ParameterFile::open(folder))
    fail_user("'", folder, "' is packed, and '", adapters[0].folder, "' changes its weights: merge it before packing");
  if (model.lora) name_classes(model, adapters[0].folder);
  return model;
}

AdapterFiles::AdapterFiles(const PretrainedModel& model, const std::vector<BoundRow>& rows) {
  for (const AdapterFolder& adapter : model.adapters) add(model, rows, adapter);
}

AdapterFiles::~AdapterFiles() = default;

void AdapterFiles::add(const PretrainedModel& model, const std::vector<BoundRow>& rows, const AdapterFolder& adapter) {
  const TensorFile& file = *files_.emplace_back(open_adapters(adapter.folder));
  const LoraOptions options = read_adapter_options(adapter.folder);
  const std::map<std::string, LoraOptions::Layer> layers = layers_of(model, options);
  const bool is_chosen = are_chosen(model.adapters);
  const std::string ending = (is_chosen ? "." + set_name(adapter) : "") + kWeight;
  std::map<std::string, const TensorEntry*> entries;  // by the table's names, as are the maps below
  for (const TensorEntry& entry : file.entries()) {
    // With "bias" of all layers PEFT saves that of a module trained in full three times.
    const auto has = [&](const char* part) { return entry.name.find(part) != entry.name.npos; };
    if (!has(".modules_to_save.") && !has(".original_module.")) entries[own_name(model.names, entry.name)] = &entry;
  }
  const auto expect = [&](const std::string& name, const Shape& shape) {
    const TensorEntry* entry = find_or(entries, name, nullptr);
    if (!entry) fail_user("'", file.path(), "': tensor ", name, " is missing");
    if (entry->type.shape != shape || !is_float(entry->dtype))
      fail_user("'", file.path(), "': tensor ", entry->name, " is ", entry->text(), ", expected floats of the shape ",
          shape.text());
    return entry;
  };
  std::map<std::string, const BoundRow*> places, copies;  // the latter of tied weights
  for (const BoundRow& bound : rows) {
    const auto& [tensor, role] = std::tie(bound.row->tensor, bound.row->role);
    if (role == TensorRole::kAdapter) {
      if (!tensor.ends_with(ending)) continue;
      const std::string name = peft_name(model, without(tensor, ending) + kWeight);
      const double all = options.scale(), own = name.ends_with(kLoraB) ? layers.at(without(name, kLoraB)).scale : all;
      placed_.push_back({&bound, expect(name, bound.shape), own == all ? 1 : static_cast<float>(own / all)});
      entries.erase(name);
    } else if (!is_chosen && bound.spec) {
      (role == TensorRole::kCopy ? copies : places)[peft_name(model, tensor)] = &bound;
    }
  }
  for (const auto& [name, copy] : copies)
    for (const auto& [own, place] : places) {
      const TensorEntry *one = find_or(entries, own, nullptr), *other = find_or(entries, name, nullptr);
      if (place->spec != copy->spec || (!one && !other)) continue;
      if (!one || !other || one->text() != other->text() || std::memcmp(one->data, other->data, one->bytes()) != 0)
        fail_user("'", file.path(), "': ", own, " and ", name, " are one tensor of the model, and differ here");
    }
  for (const auto& [name, entry] : entries) {
    if (copies.contains(name)) continue;
    if (const BoundRow* place = find_or(places, name, nullptr)) {
      placed_.push_back({place, expect(name, place->shape), 1});
      continue;
    }
    const std::string module = name.substr(0, name.find(".lora_"));
    const BoundRow* weight = find_or(places, module + kWeight, nullptr);
    const auto layer = layers.find(module);
    if (layer == layers.end() || !weight || weight->shape.rank() != 2)
      fail_user("'", file.path(), "': the model has no place for tensor ", entry->name,
          is_chosen ? "; requests choose adapters of linear layers, a folder without a name may have others" : "");
    if (!name.ends_with(kLoraA)) continue;
    const bool turned = weight->row->form == TensorForm::kTransposed;
    const int64_t out = weight->shape[turned], in = weight->shape[!turned], rank = layer->second.rank;
    merged_.push_back({weight, expect(name, {rank, in}), expect(module + kLoraB, {out, rank}),
        layer->second.has_magnitude ? expect(module + kMagnitude, {out}) : nullptr, layer->second.scale});
  }
}

void AdapterFiles::read(const ParameterLayout& layout, const ParameterSlot& slot, float* parameters) const {
  const auto is_own = [&](const BoundRow* bound) { return bound->spec == &slot.spec; };
  const bool any =
      std::ranges::any_of(placed_, is_own, &Placed::bound) || std::ranges::any_of(merged_, is_own, &Merged::weight);
  if (any && layout.is_in_blocks(slot))
    fail_user("adapters change ", slot.spec.name, ", which stays in the blocks of its file; --quantize none reads ",
        "it as floats");
  for (const auto& [bound, entry, factor] : placed_) {
    if (!is_own(bound)) continue;
    read_tensor(*bound, entry->dtype, entry->data, parameters);
    if (factor != 1)
      for (int64_t i = 0; i < bound->shape.elements(); ++i) parameters[bound->offset + i] *= factor;
  }
  for (const auto& [weight, a, b, magnitude, scale] : merged_) {
    if (!is_own(weight)) continue;
    const auto values_of = [&](const TensorEntry& entry, bool by_heads) {
      NameRow row = *weight->row;
      row.form = by_heads && row.form == TensorForm::kByHeads ? row.form : TensorForm::kSame;
      std::vector<float> values(entry.type.shape.elements());
      read_tensor({&row, &slot.spec, 0, entry.type.shape}, entry.dtype, entry.data, values.data());
      return values;
    };
    const std::vector<float> lengths = magnitude ? values_of(*magnitude, true) : std::vector<float>();
    merge_low_rank({b->type.shape[0], a->type.shape[1]}, values_of(*a, false).data(), values_of(*b, true).data(),
        a->type.shape[0], scale, magnitude ? lengths.data() : nullptr, parameters + weight->offset);
  }
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

#include "models/families/pretrained.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/packed_files.h"
#include "base/text.h"
#include "formats/weight_files.h"
#include "models/families/binding.h"
#include "models/families/labels.h"
#include "models/families/tensor_match.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
std::string config_path(const std::string& folder) { return (std::filesystem::path(folder) / "config.json").string(); }

// What the folder is taken for.
const Architecture& chosen_architecture(const Family& family, const ConfigFile& config, const OpenOptions& options) {
  const std::vector<std::string> own = config.texts("architectures");
  const std::string name = !options.architecture.empty() ? options.architecture
                           : options.head                ? family.architecture(*options.head).name
                           : own.empty()                 ? family.architectures[0].name
                                                         : own[0];
  for (const Architecture& architecture : family.architectures)
    if (name == architecture.name) return architecture;
  config.fail("architecture \"", name, "\" is not supported (of ", family.model_type, ": ",
      joined(family.architectures, ", ", &Architecture::name), ")");
}

void set_labels(ConfigFile& config, int64_t labels) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < labels; ++i) names.push_back("LABEL_" + std::to_string(i));
  name_labels(config, names);
  if (config.has("num_labels")) config.set("num_labels", labels);
}

// Sizes that are valid alone may overflow together.
void check_parameter_count(const Module& module, const ConfigFile& config) {
  constexpr int64_t kMost = INT64_C(1) << 50;
  int64_t total = 0;
  for (const ParameterSpec& spec : module.parameters()) {
    int64_t count = 1;
    bool possible = true;
    for (const int64_t size : spec.shape.sizes()) possible = possible && !__builtin_mul_overflow(count, size, &count);
    if (!possible || count > kMost - total) config.fail("its sizes make a model that is larger than any memory");
    total += count;
  }
}

PretrainedModel construct(const ConfigFile& config, const OpenOptions& options) {
  PretrainedModel model;
  model.config = config;
  model.family = &find_family(config);
  const Architecture& architecture = chosen_architecture(*model.family, config, options);
  model.architecture = architecture.name, model.head = architecture.head;
  // The names stay if the number of classes does.
  if (options.labels > 0 && options.labels != label_count(config)) set_labels(model.config, options.labels);
  model.module = model.family->construct(model.config, model.head);
  check_parameter_count(*model.module, config);
  model.names = model.family->names(model.config, model.head, *model.module);
  const std::optional<LoraOptions> lora = options.lora ? options.lora : read_lora_options(model.config);
  if (lora) add_adapters(model, *lora);
  return model;
}

bool has_nan(std::span<const float> values) {
  bool found = false;  // without an early end, which would keep this from being vectorized
  for (const float value : values) found |= std::isnan(value);
  return found;
}

// Reports NaN weights by name before they are used.
void check_numbers(const TensorMatch& match, const ParameterSlot& slot, const float* parameters) {
  if (!has_nan({parameters + slot.offset, static_cast<size_t>(slot.spec.shape.elements())})) return;
  for (const MatchedRow& matched : match.rows) {
    if (matched.bound->spec != &slot.spec || !matched.weight) continue;
    const TensorEntry& entry = *matched.weight->entry;
    std::vector<float> values(entry.type.shape.elements());
    matched.weight->file->read(entry, values.data());
    if (has_nan(values))
      fail_user(
          "'", matched.weight->file->path(), "': tensor ", entry.name, " holds values that are not numbers (NaN)");
  }
}

bool may_be_missing(TensorRole role) {
  return role == TensorRole::kHead || role == TensorRole::kOptional || role == TensorRole::kAdapter;
}

// Draws what files lack of a parameter, reads the rest, and compares their copies of it.
void load_parameter(const TensorMatch& match, const ParameterSlot& slot, float* parameters, uint64_t seed) {
  std::vector<const MatchedRow*> read, compared;
  bool is_fresh = false;
  for (const MatchedRow& matched : match.rows) {
    if (matched.bound->spec != &slot.spec) continue;
    const TensorRole role = matched.bound->row->role;
    if (matched.weight) (role == TensorRole::kCopy ? compared : read).push_back(&matched);
    is_fresh = is_fresh || (!matched.weight && may_be_missing(role));
  }
  if (is_fresh)
    initialize(slot.spec.initializer, slot.spec.name, seed, slot.spec.shape,
        {parameters + slot.offset, static_cast<size_t>(slot.spec.shape.elements())});
  const auto drop_pages = [](const MatchedRow& matched) {
    if (matched.weight->entry->bytes() >= 1 << 20) matched.weight->file->drop_pages();
  };
  std::vector<std::byte> room;
  for (const MatchedRow* matched : read) {
    const auto& [name, entry, file] = *matched->weight;
    if (matched->bound->row->form == TensorForm::kSame)  // without a copy of what the file has in another form
      file->read(*entry, parameters + matched->bound->offset);
    else read_tensor(*matched->bound, entry->dtype, matched->weight->elements(room), parameters);
    drop_pages(*matched);
  }
  check_numbers(match, slot, parameters);
  for (const MatchedRow* matched : compared) {
    if (!equals_tensor(*matched->bound, matched->weight->entry->dtype, matched->weight->elements(room), parameters))
      match.fail_different(*matched);
    drop_pages(*matched);
  }
}

// Of a packed model, whose tensors are the parameters: checks shapes, and finds which are drawn.
void match_parameters(PretrainedModel& model, const ParameterFile& file, bool new_head) {
  const ParameterLayout layout(*model.module);
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  for (const BoundRow& bound : rows) {
    if (!bound.spec) continue;
    const bool is_there = file.has(bound.spec->name);
    const TensorRole role = bound.row->role;
    if (!is_there && role == TensorRole::kHead && new_head) model.fresh.push_back(bound.row->tensor);
    if (!is_there && (may_be_missing(role) && (role != TensorRole::kHead || new_head))) continue;
    file.check(*bound.spec);
    if (role != TensorRole::kCopy) model.dtypes[bound.row->tensor] = file.dtype(bound.spec->name);
  }
}

void load_packed(const PretrainedModel& model, const ParameterFile& file, const ParameterLayout& layout,
    const ParameterTarget& target, uint64_t seed) {
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  const AdapterFiles adapters(model, rows);
  ParameterTarget adapted = target;
  adapted.finished = [&](const ParameterSlot& slot) {
    adapters.read(slot.spec, target.flat);
    target.finish(slot);
  };
  file.read(layout, adapted, [&](const ParameterSlot& slot) {
    for (const NameRow& row : model.names.rows)
      if (row.parameter == slot.spec.name && !may_be_missing(row.role) && row.role != TensorRole::kCopy)
        file.check(slot.spec);  // which says that it is missing
    initialize(slot.spec.initializer, slot.spec.name, seed, slot.spec.shape,
        {target.flat + slot.offset, static_cast<size_t>(slot.spec.shape.elements())});
  });
}
}  // namespace

void PretrainedModel::fail_type() const {
  fail_user(folder.empty() ? "the model" : "'" + folder + "'", " is a ", architecture,
      ", which does not fit this task: text generation takes a decoder (GPT-2, Llama), classification and masked "
      "tokens an encoder (BERT), translation a T5 or Marian, images a ViT");
}

bool is_pretrained_folder(const std::string& folder) {
  const std::string path = config_path(folder);
  return file_exists(path) && ConfigFile(path).has("model_type");
}

void check_model_folder(const std::string& folder) {
  if (file_exists(config_path(folder))) return;
  const std::string hint = missing_model_hint(folder);
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'", hint);
  fail_user("'", folder, "'",
      hint.empty() && !is_folder(folder) ? " is neither a run, a model folder nor a file of weights"
                                         : " has no config.json" + hint);
}

PretrainedModel open_pretrained(const std::string& folder, const OpenOptions& options) {
  check_model_folder(folder);
  const ConfigFile config(config_path(folder));
  PretrainedModel model = construct(config, options);
  model.folder = folder;
  const std::vector<std::string> own = model.config.texts("architectures");
  const bool converted = own.empty() || own[0] != model.architecture;
  const bool new_head = converted || (options.labels > 0 && options.labels != label_count(config));
  if (const auto packed = ParameterFile::open(folder)) {
    match_parameters(model, *packed, new_head);
  } else if (!options.may_lack_weights || has_weight_files(folder)) {
    const WeightFiles files(folder, model.names.folders);
    const ParameterLayout layout(*model.module);
    const std::vector<BoundRow> rows = bind_names(model.names, layout);
    const TensorMatch match(model, rows, files, new_head);
    model.with_prefix = match.with_prefix;
    model.dtypes = match.dtypes();
    model.fresh = match.fresh;
    model.unused = match.unused;
    if (new_head && !converted && !match.fresh.empty())
      log_info("'" + folder + "' tells " + std::to_string(label_count(config)) + " classes: its " + match.fresh[0] +
               " is drawn anew, for " + std::to_string(options.labels));
  }
  if (is_cross_encoder(folder)) set_pairs(model.config, true);
  if (converted) {
    model.with_prefix = true;  // as files of the architecture it now has are written
    model.config.set("architectures", std::vector<std::string>{model.architecture});
  }
  return model;
}

PretrainedModel new_pretrained(const ConfigFile& config) { return construct(config, {}); }

void load_parameters(
    const PretrainedModel& model, const ParameterLayout& layout, const ParameterTarget& target, uint64_t seed) {
  if (const auto packed = ParameterFile::open(model.folder)) return load_packed(model, *packed, layout, target, seed);
  const WeightFiles files(model.folder, model.names.folders);
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  const TensorMatch match(model, rows, files, !model.fresh.empty());
  const AdapterFiles adapters(model, rows);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (layout.is_in_blocks(slot)) load_blocks(match, slot, target.flat);
    else load_parameter(match, slot, target.flat, seed);
    adapters.read(slot.spec, target.flat);
    target.finish(slot);
  }
  for (const MatchedRow& matched : match.rows) {  // constants that the files have
    if (matched.bound->spec || !matched.weight) continue;
    std::vector<std::byte> room;
    if (!equals_tensor(*matched.bound, matched.weight->entry->dtype, matched.weight->elements(room), target.flat))
      match.fail_different(matched);
  }
}
}  // namespace linnet

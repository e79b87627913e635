#include "models/families/pretrained.h"
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/functions.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "formats/weight_files.h"
#include "models/families/binding.h"
#include "models/families/config_file.h"
#include "models/families/static_scales.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {
// What the folder is taken for.
const Architecture& chosen_architecture(const Family& family, const ConfigFile& config, const OpenOptions& options) {
  const std::vector<std::string> own = config.texts("architectures");
  const std::string name = !options.architecture.empty() ? options.architecture
                           : options.head                ? family.architecture(*options.head).name
                           : own.empty()                 ? family.architectures[0].name
                                                         : own[0];
  if (const Architecture* found = find_item(family.architectures, name, &Architecture::name)) return *found;
  config.fail("architecture \"", name, "\" is not supported (of ", family.model_type, ": ",
      joined(family.architectures, ", ", &Architecture::name), ")");
}

void set_labels(ConfigFile& config, int64_t labels) {
  const std::vector<std::string> names = mapped(labels, [](int64_t i) { return "LABEL_" + std::to_string(i); });
  name_labels(config, names);
  if (config.has("num_labels")) config.set("num_labels", labels);
}

PretrainedModel construct(const ConfigFile& config, const OpenOptions& options) {
  PretrainedModel model;
  model.config = config;
  model.family = &find_family(config);
  const Architecture& architecture = chosen_architecture(*model.family, config, options);
  model.architecture = architecture.name, model.head = architecture.head;
  // The names stay if the number of classes does.
  if (options.labels > 0 && options.labels != label_count(config)) set_labels(model.config, options.labels);
  const auto make = [&] {
    model.module = model.family->construct(model.config, model.head);
    if (find_beyond(model.module->parameters(), INT64_C(1) << 50))  // sizes that are valid alone may overflow together
      config.fail("its sizes make a model that is larger than any memory");
    model.names = model.family->names(model.config, model.head, *model.module);
  };
  make();
  for (const auto& [tensor, shape] : options.replaced) model.replaced[model.names.current(tensor)] = shape;
  for (const NameRow& row : model.names.rows)
    if (row.parameter == "tokens.weight" || row.parameter == "bert.words.weight")
      if (const Shape* shape = find_value(model.replaced, row.tensor); shape && shape->rank() == 2)
        model.config.set("vocab_size", (*shape)[0]);
  if (!model.replaced.empty()) make();  // of that many tokens
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
  if (is_fresh) initialize(slot.spec, seed, parameters + slot.offset);
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
    adapters.read(layout, slot, target.flat);
    target.finish(slot);
  };
  file.read(layout, adapted, [&](const ParameterSlot& slot) {
    for (const NameRow& row : model.names.rows)
      if (row.parameter == slot.spec.name && !may_be_missing(row.role) && row.role != TensorRole::kCopy)
        file.check(slot.spec);  // which says that it is missing
    initialize(slot.spec, seed, target.flat + slot.offset);
  });
}

std::string line(const char* name, const std::string& value) { return printed("%-18s", name) + value + "\n"; }

// The settings that families call alike or nearly.
std::string sizes(const ConfigFile& config) {
  struct Row {
    const char* name;
    std::initializer_list<const char*> keys;
  };
  const Row rows[] = {{"vocabulary", {"vocab_size"}}, {"width", {"n_embd", "hidden_size", "d_model", "dim"}},
      {"layers", {"n_layer", "num_hidden_layers", "num_layers", "encoder_layers", "n_layers"}},
      {"heads", {"n_head", "num_attention_heads", "num_heads", "encoder_attention_heads", "n_heads"}},
      {"positions", {"n_positions", "max_position_embeddings"}}};
  std::string text;
  for (const Row& row : rows)
    for (const char* key : row.keys)
      if (config.has(key)) {
        text += (text.empty() ? "" : ", ") + std::string(row.name) + " " + std::to_string(config.integer(key));
        break;
      }
  return text;
}

std::string in_megabytes(double bytes) { return printed("%.1f MB", bytes / 1e6); }

std::string types(const WeightFiles& files) {
  std::set<std::string> names;
  for (const WeightFiles::Weight& weight : files.weights()) names.insert(weight.entry->form_name());
  return joined(names);
}

std::string tokenizer_files(const std::string& folder) {
  std::string text;
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tokenizer.model",
           "sentencepiece.bpe.model", "source.spm", "target.spm"})
    if (file_exists(path_in(folder, name))) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none" : text;
}

namespace fs = std::filesystem;

// Tokenizer, generation and licence files; no weights in any format.
bool is_companion(const fs::path& path) {
  const std::string name = path.filename().string(), ending = path.extension().string();
  if (name.starts_with(".") || name == "config.json" || name.ends_with(".index.json") || name == "trainer_state.json")
    return false;
  if (name.starts_with("LICENSE")) return true;
  for (const char* known : {".json", ".txt", ".model", ".spm", ".jinja", ".md", ".tiktoken"})
    if (ending == known) return true;
  return false;
}

// Files that are written but not yet in their places.
using PendingFiles = std::vector<std::unique_ptr<AtomicFile>>;

void prepare(PendingFiles& files, const fs::path& to, std::string_view text) {
  make_directories(to.parent_path().string());
  files.push_back(std::make_unique<AtomicFile>(to.string()));
  files.back()->write(text);
  files.back()->finish();
}

// A model's companions but the weights of the folders `written`, also one level down (1_Pooling/config.json).
void prepare_companions(PendingFiles& files, const std::string& from, const std::string& to,
    const std::map<std::string, std::string>& instead, const std::vector<std::string>& written = {}) {
  if (is_packed(from) || is_gguf(from)) {
    for (const auto& [name, text] : open_packed(from)->files) {
      const fs::path path = fs::path(to) / name;
      if (name == "config.json" || name.ends_with(kTokenizerTables) || instead.contains(name)) continue;
      prepare(files, path, text);
    }
    return;
  }
  std::error_code error;
  if (!fs::exists(from) || fs::equivalent(from, to, error)) return;
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && is_companion(entry.path()) && !instead.contains(entry.path().filename().string()))
      prepare(files, fs::path(to) / entry.path().filename(), read_file(entry.path().string()));
    if (!entry.is_directory() || !fs::exists(entry.path() / "config.json")) continue;
    const fs::path folder = fs::path(to) / entry.path().filename();
    const bool has_own = contains(written, entry.path().filename().string());
    for (const char* name : {"config.json", kWeightsFile, kPickledFile})  // weights of linear layers behind the pooling
      if (fs::exists(entry.path() / name) && (!has_own || name == std::string_view("config.json")))
        prepare(files, folder / name, read_file((entry.path() / name).string()));
  }
}

// The value of config.json's "dtype".
std::string dtype_setting(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF16: return "float16";
    case FileDType::kBF16: return "bfloat16";
    case FileDType::kF64: return "float64";
    default: return "float32";
  }
}

ConfigFile saved_config(const PretrainedModel& model, const SaveOptions& options) {
  ConfigFile config = model.config;
  config.erase(kLoraKey);
  config.set("architectures", std::vector<std::string>{model.architecture});
  if (options.dtype) {
    const bool old_key = config.has("torch_dtype") && !config.has("dtype");
    config.set(old_key ? "torch_dtype" : "dtype", dtype_setting(*options.dtype));
  }
  return config;
}
}  // namespace

void PretrainedModel::fail_type() const {
  fail_user(folder.empty() ? "the model" : "'" + folder + "'", " is a ", architecture,
      ", which does not fit this task: text generation takes a decoder (GPT-2, Llama), classification and masked "
      "tokens an encoder (BERT), translation a T5 or Marian, images a ViT");
}

bool is_pretrained_folder(const std::string& folder) {
  const std::string path = path_in(folder, "config.json");
  return file_exists(path) && ConfigFile(path).has("model_type");
}

void check_model_folder(const std::string& folder) {
  if (file_exists(path_in(folder, "config.json"))) return;
  const std::string hint = missing_model_hint(folder);
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'", hint);
  fail_user("'", folder, "'",
      hint.empty() && !is_folder(folder) ? " is neither a run, a model folder nor a file of weights"
                                         : " has no config.json" + hint);
}

PretrainedModel open_pretrained(const std::string& folder, const OpenOptions& options) {
  check_model_folder(folder);
  const ConfigFile config(path_in(folder, "config.json"));
  PretrainedModel model = construct(config, options);
  model.folder = folder;
  const std::vector<std::string> own = model.config.texts("architectures");
  const bool converted = own.empty() || own[0] != model.architecture;
  const bool new_head = converted || (options.labels > 0 && options.labels != label_count(config));
  if (const auto packed = ParameterFile::open(folder)) {
    if (model.config.integer("vocab_size", 0) != config.integer("vocab_size", 0))
      fail_user("'", folder, "' is packed, and the adapters have tokens of their own: merge them before packing");
    match_parameters(model, *packed, new_head);
  } else if (!options.may_lack_weights || has_weight_files(folder)) {
    const WeightFiles files(folder, model.names.folders);
    const ParameterLayout layout(*model.module);
    const TensorMatch match(model, layout, files, new_head);
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
  const TensorMatch match(model, layout, files, !model.fresh.empty());
  const AdapterFiles adapters(model, match.bound);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (layout.is_in_blocks(slot)) load_blocks(match, slot, target.flat);
    else load_parameter(match, slot, target.flat, seed);
    adapters.read(layout, slot, target.flat);
    target.finish(slot);
  }
  for (const MatchedRow& matched : match.rows) {  // constants that the files have
    if (matched.bound->spec || !matched.weight) continue;
    std::vector<std::byte> room;
    if (!equals_tensor(*matched.bound, matched.weight->entry->dtype, matched.weight->elements(room), target.flat))
      match.fail_different(matched);
  }
}

std::string describe_pretrained(const std::string& folder) {
  const PretrainedModel model = open_pretrained(folder, {.may_lack_weights = true});
  std::string text = line("model", std::string(model.family->model_type) + ", " + model.architecture);
  text += line("sizes", sizes(model.config));
  text += line("parameters", with_commas(model.parameter_count()));
  if (!has_weight_files(folder) && !ParameterFile::open(folder)) {
    const auto count = static_cast<double>(model.parameter_count());
    text += line("weights", "none: config.json alone; in memory " + in_megabytes(4 * count) + " in fp32, " +
                                in_megabytes(2 * count) + " in bf16");
    return text + line("tokenizer", tokenizer_files(folder));
  }
  const WeightFiles files(folder);
  text += line("weights", in_megabytes(static_cast<double>(files.bytes())) + ", " + types(files) + ", " +
                              std::to_string(files.files()) + (files.files() == 1 ? " file" : " files"));
  if (is_gguf(folder)) {
    const ParameterLayout layout(*model.module, {}, folder_quantization(folder, ""));
    const size_t bytes = layout.quantized_bytes() + float_bytes(layout.stored_count());
    text += line("in memory", in_megabytes(static_cast<double>(bytes)) +
                                  " for inference, matrices in the file's blocks; fp32 with --quantize none");
  }
  if (const auto packed = ParameterFile::open(folder))
    text += line("packed",
        packed->words().text() + (packed->can_map(ParameterLayout(*model.module, {}, packed->words().parsed()))
                                         ? ", mapped: processes share it"
                                         : ", copied when it is opened"));
  text += line("tokenizer", tokenizer_files(folder));
  for (const std::string& name : model.unused) text += line("unused", name);
  return text;
}

void save_companions(const PretrainedModel& model, const std::string& folder) {
  PendingFiles files;
  if (!model.folder.empty()) prepare_companions(files, model.folder, folder, {});
  prepare(files, fs::path(folder) / "config.json", saved_config(model, {}).dump());
  for (const auto& file : files) file->commit();
}

void save_pretrained(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& folder, const SaveOptions& options) {
  if (options.dtype && !is_float(*options.dtype))
    fail_user("weights cannot be saved as ", lower_ascii(file_dtype_name(*options.dtype)));
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::vector<float> merged;
  if (model.lora) {
    merged.assign(parameters, parameters + layout.parameter_count());
    merge_adapters(model, layout, merged.data());
    parameters = merged.data();
  }
  std::map<std::string, std::vector<WeightSource>> weights;  // by folder within; "": this one
  for (const BoundRow& bound : rows) {
    const NameRow& row = *bound.row;
    if (row.role == TensorRole::kAdapter) continue;
    const auto had = model.dtypes.find(row.tensor);
    const bool absent = had == model.dtypes.end() &&
                        (row.role == TensorRole::kCopy || (row.role == TensorRole::kOptional && !model.folder.empty()));
    if (absent) continue;
    const FileDType dtype = options.dtype ? *options.dtype : had == model.dtypes.end() ? FileDType::kF32 : had->second;
    const bool bare = !model.with_prefix && row.tensor.starts_with(model.names.prefix);
    const std::string name = bare ? row.tensor.substr(model.names.prefix.size()) : row.tensor;
    const size_t slash = name.find('/'), begin = slash == name.npos ? 0 : slash + 1;
    weights[name.substr(0, slash == name.npos ? 0 : slash)].push_back({name.substr(begin), dtype, bound.shape,
        [&bound, parameters, dtype](int64_t first, int64_t count, std::byte* out) {
          write_tensor(bound, parameters, dtype, first, count, out);
        }});
  }
  const OutputFolder made(folder);
  // A full disk must not leave half a model: small files come first, and weights take their places last, having room.
  PendingFiles files;
  if (!model.folder.empty()) prepare_companions(files, model.folder, folder, options.files, model.names.folders);
  for (const auto& [name, text] : options.files) prepare(files, fs::path(folder) / name, text);
  prepare(files, fs::path(folder) / "config.json", saved_config(model, options).dump());
  for (const auto& [part, sources] : weights) {
    if (!part.empty()) make_directories(path_in(folder, part));
    save_weight_files(path_in(folder, part), sources, options.max_shard_bytes, {{"format", "pt"}});
  }
  for (const auto& file : files) file->commit();
}
}  // namespace linnet

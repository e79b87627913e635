#include <algorithm>
#include <filesystem>
#include <memory>
#include "base/fail.h"
#include "base/files.h"
#include "base/packed_files.h"
#include "base/text.h"
#include "formats/weight_files.h"
#include "models/families/binding.h"
#include "models/families/pretrained.h"

namespace linnet {
namespace {
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

// A model's companions but the weights of the folders `written`, also in folders one level down (sentence-transformers'
// 1_Pooling/config.json).
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
    const bool has_own = std::ranges::find(written, entry.path().filename().string()) != written.end();
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
  make_directories(folder);
  // A full disk must not leave half a model: small files come first, and weights take their places last, having room.
  PendingFiles files;
  if (!model.folder.empty()) prepare_companions(files, model.folder, folder, options.files, model.names.folders);
  for (const auto& [name, text] : options.files) prepare(files, fs::path(folder) / name, text);
  prepare(files, fs::path(folder) / "config.json", saved_config(model, options).dump());
  for (const auto& [part, sources] : weights) {
    if (!part.empty()) make_directories((fs::path(folder) / part).string());
    save_weight_files((fs::path(folder) / part).string(), sources, options.max_shard_bytes, {{"format", "pt"}});
  }
  for (const auto& file : files) file->commit();
}
}  // namespace linnet

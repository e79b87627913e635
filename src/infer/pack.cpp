#include "infer/pack.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "io/packed_model.h"
#include "pretrained/pretrained.h"
#include "run/run_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

// What only tells of a training run, or is the weights in some form.
bool is_left_out(const std::string& name) {
  for (const char* record : {"metrics.jsonl", "samples.jsonl", "data.json", "memory.json", "system.json",
                             "trainer_state.json", "training_args.bin"})
    if (name == record) return true;
  for (const char* ending : {".safetensors", ".index.json", ".bin", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth",
                             ".gguf", ".html", ".linnet", ".tmp", ".png"})
    if (name.ends_with(ending)) return true;
  return name.starts_with(".") || name.starts_with("events.out.") || name.starts_with("README");
}

// Folders inside that belong to the model: tokenizers, the configuration a run started from, parts of a
// sentence-transformers folder.
bool is_part(const fs::path& folder) {
  for (const char* file : {"config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt", "vocab.json"})
    if (fs::exists(folder / file)) return !fs::exists(folder / kWeightsFile);
  return false;
}

void add_files(const fs::path& folder, const std::string& prefix, std::map<std::string, std::string>& files) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !is_left_out(name)) files[prefix + name] = read_file(entry.path().string());
    if (entry.is_directory() && prefix.empty() && is_part(entry.path())) add_files(entry.path(), name + "/", files);
  }
}

WeightSource source_of(const SafetensorsEntry& entry) {
  const size_t size = file_dtype_size(entry.dtype);
  return {entry.name, entry.dtype, entry.type.shape,
          [data = entry.data, size](int64_t first, int64_t count, std::byte* out) {
            std::memcpy(out, data + static_cast<size_t>(first) * size, static_cast<size_t>(count) * size);
          }};
}

}  // namespace

PackReport pack_model(const std::string& folder, const std::string& path) {
  const RunFolder run(folder);
  if (is_packed(folder)) fail_user("'" + folder + "' is packed already");
  const bool is_run = run.has_config() || !is_pretrained_folder(folder);
  if (is_run) run.load_config(), run.best_weights();  // says what is wrong
  const WeightFiles weights(folder);
  PackedContents contents;
  for (const WeightFiles::Weight& weight : weights.weights()) {
    contents.weights.push_back(source_of(*weight.entry));
    contents.metadata.insert(weight.file->metadata().begin(), weight.file->metadata().end());
  }
  add_files(folder, "", contents.files);
  save_packed_model(path, contents);
  use_packed_models();
  open_packed(path);
  return {contents.files.size(), contents.weights.size(), static_cast<uint64_t>(fs::file_size(path))};
}

}  // namespace linnet

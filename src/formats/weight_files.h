// A model folder's weights: model.safetensors, or the shards in model.safetensors.index.json.
//
//   {"metadata": {"total_size": 123}, "weight_map": {"h.0.attn.weight": "model-00001-of-00002.safetensors", ...}}
//
// Without these: pytorch_model.bin, or shards with such an index, read only; or llama.cpp's (models/families/gguf.h).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "formats/safetensors.h"

namespace linnet {
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kWeightsIndex = "model.safetensors.index.json";
constexpr const char* kPickledFile = "pytorch_model.bin";

bool has_weight_files(const std::string& folder);  // for WeightFiles

// Mapped for reading. User errors name the file: no weights, or an index that is invalid, disagrees with its shards, or
// names a file that is absent or outside the folder.
class WeightFiles {
 public:
  // `parts`: subfolders, whose names are put before their tensors': "2_Dense/linear.weight".
  explicit WeightFiles(const std::string& folder, const std::vector<std::string>& parts = {});

  struct Weight {
    std::string name;
    const TensorEntry* entry;
    const TensorFile* file;
    const std::byte* elements(std::vector<std::byte>& room) const { return file->elements(*entry, room); }
  };
  const std::vector<Weight>& weights() const { return weights_; }  // file by file, in the order of its entries
  const Weight* find(const std::string& name) const;               // null when missing
  size_t files() const { return files_.size(); }
  uint64_t bytes() const;  // of all tensors

 private:
  void add_folder(const std::string& folder, const std::string& prefix);
  void add_file(std::shared_ptr<const TensorFile> file, const std::string& prefix);
  void add_shards(const std::string& index_path, const std::string& prefix);

  std::vector<std::shared_ptr<const TensorFile>> files_;
  std::vector<Weight> weights_;
  std::map<std::string, size_t> by_name_;
};

// A tensor to write, made piece by piece, so that no second copy of a model is in memory.
struct WeightSource {
  std::string name;
  FileDType dtype;
  Shape shape;
  // Writes elements [first, first + count), `count` * file_dtype_size(dtype) bytes.
  std::function<void(int64_t first, int64_t count, std::byte* out)> fill;

  uint64_t bytes() const { return static_cast<uint64_t>(shape.elements()) * file_dtype_size(dtype); }
};
// One whose elements lie at `data`.
WeightSource stored_weight(std::string name, FileDType dtype, const Shape& shape, const std::byte* data);

// Writes one file, or several and an index for more than `max_shard_bytes`; then removes an earlier save's weight
// files. Each file is replaced in one step.
void save_weight_files(const std::string& folder, const std::vector<WeightSource>& weights, uint64_t max_shard_bytes,
    const SafetensorsMetadata& metadata);

// The order in a file: wider elements first, which aligns every tensor; or as given, from a multiple of 4,096 bytes.
enum class WeightOrder { kByWidth, kGivenInPages };
// Writes one file, whatever its size.
void save_weight_file(const std::string& path, const std::vector<WeightSource>& weights,
    const SafetensorsMetadata& metadata, WeightOrder order = WeightOrder::kByWidth);
}  // namespace linnet

// The weights of a model folder: model.safetensors, or the shards that model.safetensors.index.json names.
//
//   {"metadata": {"total_size": 123}, "weight_map": {"h.0.attn.weight": "model-00001-of-00002.safetensors", ...}}
//
// A folder without these may have pytorch_model.bin, or shards with an index of the same form. They are only read. A
// file of llama.cpp is read like a folder (models/families/gguf.h).
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

// Whether WeightFiles finds a file to read.
bool has_weight_files(const std::string& folder);

// Mapped for reading. User errors name the file: no weights in the folder, an index that is not valid, names a file
// that is absent or outside the folder, or disagrees with its shards.
class WeightFiles {
 public:
  // `parts`: folders within, whose tensors' names begin with them: "2_Dense/linear.weight".
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

// One tensor to be written, made piece by piece, so that a model in another form needs no second copy in memory.
struct WeightSource {
  std::string name;
  FileDType dtype;
  Shape shape;
  // Writes elements [first, first + count), `count` * file_dtype_size(dtype) bytes, to `out`.
  std::function<void(int64_t first, int64_t count, std::byte* out)> fill;
};

// Writes one file, or with more than `max_shard_bytes` of data several and an index; then removes weight files of an
// earlier save. Each file is replaced in one step.
void save_weight_files(const std::string& folder, const std::vector<WeightSource>& weights, uint64_t max_shard_bytes,
                       const SafetensorsMetadata& metadata);

// How a file is laid out: the wider elements first, so that every tensor is aligned to its own; or in the order given,
// the data beginning at a multiple of 4,096 bytes.
enum class WeightOrder { kByWidth, kGivenInPages };
// Writes one file, whatever its size.
void save_weight_file(const std::string& path, const std::vector<WeightSource>& weights,
                      const SafetensorsMetadata& metadata, WeightOrder order = WeightOrder::kByWidth);

}  // namespace linnet

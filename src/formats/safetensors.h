// The safetensors format: named tensors in one file that is mapped, not parsed.
//
//   8 bytes  N, little endian
//   N bytes  {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//   data     offsets count from here; row-major, little endian; no holes, no overlaps
//
// https://github.com/huggingface/safetensors#format
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "formats/file_dtype.h"

namespace linnet {

struct SafetensorsEntry {
  std::string name;
  TensorType type;        // for a type the engine does not compute in: the type it is converted to, with more bytes
  const std::byte* data;  // copy it out: files of other programs may leave it unaligned
  FileDType dtype;        // of the elements at `data`

  // What the file holds, in bytes and as text ("F16[8, 16]").
  size_t bytes() const { return static_cast<size_t>(type.shape.elements()) * file_dtype_size(dtype); }
  std::string text() const { return file_dtype_name(dtype) + type.shape.text(); }
};

enum class SafetensorsTypes {
  kEngine,  // F32, F64, I32 and U8, whose data has type.bytes() bytes
  kAll,     // all of FileDType; read_floats() and read_integers() convert
};

// A file opened for reading. Whatever breaks the format, or names an element type that was not asked for, is a user
// error of one line that names the file. Damage to the data itself is found by check_data() only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path, SafetensorsTypes types = SafetensorsTypes::kEngine);
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  SafetensorsFile(std::span<const std::byte> bytes, const std::string& name,
                  SafetensorsTypes types = SafetensorsTypes::kEngine);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their data
  const SafetensorsEntry& at(const std::string& name) const;    // a missing one is a user error naming tensor and file
  const SafetensorsEntry* find(const std::string& name) const;  // null when missing
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // Reads all data and compares it with the checksum that save_safetensors() stored; without one, accepts it.
  void check_data() const;
  // See MappedFile: after a large tensor was copied out, its pages need not count as this process's memory.
  void drop_pages() const { mapped_.drop_pages(); }

 private:
  void parse(std::span<const std::byte> bytes, SafetensorsTypes types);
  void keep_weights_alone();  // of a packed model (packed_model.h)

  std::string path_;
  MappedFile mapped_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsTensor {
  std::string name;
  TensorType type;
  const void* data;
};
// The data of a tensor that has none in memory, from byte `first` on: some of them (a multiple of 32 bytes, or the
// rest); valid until the next call.
using FetchTensor = std::function<std::span<const std::byte>(const SafetensorsTensor& tensor, size_t first)>;
using SafetensorsMetadata = std::map<std::string, std::string>;

// Replaces `path` in one step (see AtomicFile), straight from the memory given. Doubles come first, so that every
// tensor is aligned to its elements. Adds a checksum of the data to the metadata. Tensors whose data are null are
// fetched twice, each time all of them in their order, and each from its beginning to its end.
void save_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                      const SafetensorsMetadata& metadata = {}, const FetchTensor& fetch = {});

// The size of the file that save_safetensors() would write, in bytes; reads no data.
uint64_t safetensors_size(std::span<const SafetensorsTensor> tensors, const SafetensorsMetadata& metadata = {});

}  // namespace linnet

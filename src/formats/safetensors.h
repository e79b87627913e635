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
#include "formats/tensor_file.h"

namespace linnet {

using SafetensorsEntry = TensorEntry;
using SafetensorsMetadata = std::map<std::string, std::string>;

// Metadata of the data and of packed models (packed_model.h), and how their tensors that are files are called.
constexpr const char* kSafetensorsChecksumKey = "linnet_checksum";
constexpr const char *kPackedVersionKey = "linnet_packed", *kPackedChecksumKey = "linnet_packed_checksum",
                     *kPackedSumsKey = "linnet_packed_sums", *kPackedFilePrefix = "linnet.file:";
std::string checksum_text(uint64_t checksum);  // 16 hexadecimal digits

enum class SafetensorsTypes {
  kEngine,  // F32, F64, I32 and U8, whose data has type.bytes() bytes
  kAll,     // all of FileDType; read_floats() and read_integers() convert
};

// A file opened for reading, its entries in the order of their data. What breaks the format, or has an element type
// that was not asked for, is a user error that names the file. Damage to the data is found by check_data() only.
class SafetensorsFile : public TensorFile {
 public:
  explicit SafetensorsFile(const std::string& path, SafetensorsTypes types = SafetensorsTypes::kEngine);
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  SafetensorsFile(std::span<const std::byte> bytes, const std::string& name,
                  SafetensorsTypes types = SafetensorsTypes::kEngine);

  // Reads all data and compares it with the checksum that save_safetensors() stored; without one, accepts it.
  void check_data() const;

 private:
  void parse(std::span<const std::byte> bytes, SafetensorsTypes types);
};

struct SafetensorsTensor {
  std::string name;
  TensorType type;
  const void* data;
};
// Data of a tensor that has none in memory, from byte `first` on, until the next call: the rest, or 32 n bytes.
using FetchTensor = std::function<std::span<const std::byte>(const SafetensorsTensor& tensor, size_t first)>;

// Replaces `path` in one step (see AtomicFile), straight from the memory given. Doubles come first, so that every
// tensor is aligned to its elements. Adds a checksum of the data to the metadata. Tensors whose data are null are
// fetched twice, each time all of them in their order, and each from its beginning to its end.
void save_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                      const SafetensorsMetadata& metadata = {}, const FetchTensor& fetch = {});

// The size of the file that save_safetensors() would write, in bytes; reads no data.
uint64_t safetensors_size(std::span<const SafetensorsTensor> tensors, const SafetensorsMetadata& metadata = {});

struct SafetensorsSize {
  std::string name;
  FileDType dtype;
  Shape shape;
};
// What stands before the data of these tensors, which begin at a multiple of `unit` and follow each other.
std::string safetensors_header(std::span<const SafetensorsSize> tensors, const SafetensorsMetadata& metadata,
                               size_t unit = 8);

}  // namespace linnet

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

// Metadata keys of data and of packed models (packed_model.h), and the prefix of tensors that are files.
constexpr const char* kSafetensorsChecksumKey = "linnet_checksum";
constexpr const char *kPackedVersionKey = "linnet_packed", *kPackedChecksumKey = "linnet_packed_checksum",
                     *kPackedSumsKey = "linnet_packed_sums", *kPackedFilePrefix = "linnet.file:";
std::string checksum_text(uint64_t checksum);  // 16 hexadecimal digits

enum class SafetensorsTypes {
  kEngine,  // F32, F64, I32 and U8, whose data has type.bytes() bytes
  kAll,     // all of FileDType; read_floats() and read_integers() convert
};

// An open file, its entries in the order of their data. User errors name the file: a broken format, or a type that was
// not asked for. Only check_data() finds damaged data.
class SafetensorsFile : public TensorFile {
 public:
  explicit SafetensorsFile(const std::string& path, SafetensorsTypes types = SafetensorsTypes::kEngine);
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  SafetensorsFile(
      std::span<const std::byte> bytes, const std::string& name, SafetensorsTypes types = SafetensorsTypes::kEngine);

  // Compares all data with the checksum of save_safetensors(); accepts a file without one.
  void check_data() const;

 private:
  void parse(std::span<const std::byte> bytes, SafetensorsTypes types);
};

struct SafetensorsTensor {
  std::string name;
  TensorType type;
  const void* data;
};
// Data from byte `first` on of a tensor without data in memory: the rest, or 32 n bytes, valid until the next call.
using FetchTensor = std::function<std::span<const std::byte>(const SafetensorsTensor& tensor, size_t first)>;

// Replaces `path` in one step (AtomicFile), without copying. Doubles come first, so that all tensors are aligned. Adds
// a checksum of the data to the metadata. Tensors with null data are fetched twice, in order and as a whole.
void save_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
    const SafetensorsMetadata& metadata = {}, const FetchTensor& fetch = {});

// The bytes that save_safetensors() would write; reads no data.
uint64_t safetensors_size(std::span<const SafetensorsTensor> tensors, const SafetensorsMetadata& metadata = {});

struct SafetensorsSize {
  std::string name;
  FileDType dtype;
  Shape shape;
};
// The header of these tensors, whose data begin at a multiple of `unit` and are contiguous.
std::string safetensors_header(
    std::span<const SafetensorsSize> tensors, const SafetensorsMetadata& metadata, size_t unit = 8);
}  // namespace linnet

// The safetensors format: named tensors in one file that is mapped, not parsed.
//
//   8 bytes  N, little endian
//   N bytes  {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//   data     offsets count from here; row-major, little endian; no holes, no overlaps
//
// https://github.com/huggingface/safetensors#format
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include "base/numbers.h"
#include "formats/tensor_file.h"

namespace linnet {
// A fast 64-bit checksum against damage, not forgery: four interleaved multiply-rotate lanes.
inline uint64_t mix_checksum(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9E3779B97F4A7C15u, 29);  // odd multiplier: every step is a bijection of the state
}

// Continues a state (any at first) by data in pieces, and by their length.
class DataChecksum {
 public:
  static constexpr size_t kUnit = 32;  // bytes; all pieces but the last are multiples

  explicit DataChecksum(uint64_t state) : state_(state), lanes_{state, state ^ 1, state ^ 2, state ^ 3} {}

  void add(const void* data, size_t size) {
    const char* bytes = static_cast<const char*>(data);
    const size_t whole = size / kUnit * kUnit;
    uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];  // in registers, however it is compiled
    for (size_t at = 0; at < whole; at += kUnit) {
      // Processors do not read ahead across pages of a file, which lie apart in memory.
      __builtin_prefetch(bytes + at + kAhead);
      a = mix_checksum(a, number_at<uint64_t>(bytes + at));
      b = mix_checksum(b, number_at<uint64_t>(bytes + at + 8));
      c = mix_checksum(c, number_at<uint64_t>(bytes + at + 16));
      d = mix_checksum(d, number_at<uint64_t>(bytes + at + 24));
    }
    lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
    if (whole < size) {
      char rest[kUnit] = {};
      std::memcpy(rest, bytes + whole, size - whole);
      for (size_t lane = 0; lane < 4; ++lane)
        lanes_[lane] = mix_checksum(lanes_[lane], number_at<uint64_t>(rest + 8 * lane));
    }
    size_ += size;
  }

  uint64_t value() const {
    uint64_t state = state_;
    for (const uint64_t lane : lanes_) state = mix_checksum(state, lane);
    return mix_checksum(state, size_);
  }

 private:
  static constexpr size_t kAhead = 2048;  // bytes

  uint64_t state_, lanes_[4];
  size_t size_ = 0;
};

inline uint64_t data_checksum(uint64_t state, const void* data, size_t size) {
  DataChecksum sum(state);
  sum.add(data, size);
  return sum.value();
}

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

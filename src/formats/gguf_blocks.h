// The element types of GGUF files: numbers, or blocks of neighbors in a row that share scales.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include "engine/kernels/quantized/packed_weight.h"
#include "formats/file_dtype.h"

namespace linnet {

struct GgufBlocks {
  uint32_t id;  // in files
  const char* name;
  int64_t elements;                    // of a block
  size_t bytes;                        // of a block
  FileDType dtype;                     // of the elements once they are read: blocks become F32
  std::optional<WeightFormat> format;  // empty: plain numbers of that type
  void (*write)(const float* values, std::byte* block) = nullptr;  // null: not written
};

// Null for types that Linnet does not read.
const GgufBlocks* find_gguf_blocks(uint32_t id);
const GgufBlocks* find_gguf_blocks(std::string_view name);  // "Q8_0"
std::string gguf_type_name(uint32_t id);                    // also of those that are not read
std::string gguf_type_names();                              // of all that are read

// `count` elements, whole blocks, to elements of `blocks.dtype`, and from fp32.
void read_gguf(const GgufBlocks& blocks, const std::byte* data, int64_t count, std::byte* out);
void write_gguf(const GgufBlocks& blocks, const float* values, int64_t count, std::byte* out);

}  // namespace linnet

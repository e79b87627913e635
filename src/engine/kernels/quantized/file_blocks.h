// Blocks of neighbors in a row as in GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): 32 of
// them, or 256 in 8 blocks with common fp16 numbers (BlockFormat::unit).
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {
struct FileBlock {
  uint16_t numbers[2];    // fp16: the scale, then the minimum
  int8_t integers[8][2];  // of each of 8 blocks: for the scale of each part, then for the minimum
  int8_t codes[256];      // as BlockFormat says
};

// dequantize_rows() for rows of one panel of a packed matrix with codes and without a tail.
void dequantize_codes(const PackedWeight& weight, int64_t first, int64_t count, float* out);

void read_file_block(WeightFormat format, const std::byte* block, FileBlock& read);
// The block's 32 * BlockFormat::unit numbers.
void file_block_values(WeightFormat format, const std::byte* block, float* values);
constexpr int64_t file_row_bytes(WeightFormat format, int64_t columns) {  // `columns`: whole blocks
  const BlockFormat blocks = block_format(format);
  return columns / (PackedShape::kBlock * blocks.unit) * blocks.file_bytes();
}
bool is_finite_row(WeightFormat format, const std::byte* row, int64_t columns);  // all scales and minimums
}  // namespace linnet

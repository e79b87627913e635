// Weight matrices in 16, 8 or 4 bits: how they are rounded, and how the kernels find them in memory.
//
// A matrix w [rows, columns] (a linear layer's [out, in], a table's [ids, width]) becomes integers q and scales s with
// w ~ q * s:
//
//   kInt8        -127..127, a float scale for each row. Products round their other operand to 8 bits too and add up
//                integers (gemm_int8.h).
//   kInt8Blocks  -127..127, a bf16 scale for each block of 32 neighbors in a row. Products with few rows round their
//                other operand to 16 bits, others compute in fp32.
//   kInt4Blocks  -8..7, the same.
//   kBf16        no integers: each number is rounded to the nearest of bf16. Products compute in fp32.
//
// In kInt8, of two neighbors (columns 2i and 2i + 1) those that are positive add up to at most 128, and those that are
// negative to at least -128. So an activation u8 times them fits 16 bits (255 * 128 = 32640), and vpmaddubsw, which
// AVX2 has to multiply bytes, never saturates, whatever the activations are. The quantizer sees to it on every
// processor, so that a model gives the same integers everywhere.
//
// kBf16 lies in memory as the matrix does. Of the others, 16 rows make a panel, and rows and columns are padded with
// zeros to whole panels and blocks:
//   codes   [panels][blocks] of int8 [8][16][4]: columns 4g..4g+3 of 16 rows, or int4 [4][16][8]: columns 8g..8g+7, the
//           first in the lowest bits of a 32-bit word
//   scales  float [panels * 16], or bf16 [panels][blocks][16]
//   sums    kInt8 alone: int32 [panels * 16], 128 times the sum of a row's codes: what the kernel subtracts because it
//           stores activations with 128 added
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace linnet {

class ThreadPool;

enum class WeightFormat : uint8_t { kInt8, kInt8Blocks, kInt4Blocks, kBf16 };
inline std::span<const char* const> enum_names(WeightFormat) {
  static constexpr std::array kNames{"int8", "int8_blocks", "int4_blocks", "bf16"};
  return kNames;
}

struct PackedShape {
  static constexpr int64_t kPanel = 16, kBlock = 32;
  // Sums of kInt8 stay within 32 bits: 255 * 127 * 65536 < 2^31.
  static constexpr int64_t kMostColumns = 65536;

  WeightFormat format = WeightFormat::kInt8;
  int64_t rows = 0, columns = 0;

  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
  int64_t blocks() const { return (columns + kBlock - 1) / kBlock; }                       // of a row
  int64_t block_bytes() const { return format == WeightFormat::kInt4Blocks ? 256 : 512; }  // of a panel
  int64_t panel_bytes() const { return blocks() * block_bytes(); }
  int64_t scales_of_row() const { return format == WeightFormat::kInt8 ? 1 : blocks(); }
  size_t scales_offset() const { return static_cast<size_t>(panels() * panel_bytes()); }
  size_t sums_offset() const { return scales_offset() + static_cast<size_t>(panels() * kPanel) * sizeof(float); }
  size_t bytes() const;  // a multiple of 64

  bool operator==(const PackedShape&) const = default;
};

// The matrix in memory with its parts. Products are fastest where it is 64-byte aligned.
struct PackedWeight {
  PackedShape shape;
  const std::byte* data;

  const int8_t* codes(int64_t panel) const {
    return reinterpret_cast<const int8_t*>(data) + panel * shape.panel_bytes();
  }
  const float* row_scales() const { return reinterpret_cast<const float*>(data + shape.scales_offset()); }
  const uint16_t* block_scales(int64_t panel) const {
    return reinterpret_cast<const uint16_t*>(data + shape.scales_offset()) +
           panel * shape.blocks() * PackedShape::kPanel;
  }
  const uint16_t* bf16_row(int64_t row) const { return reinterpret_cast<const uint16_t*>(data) + row * shape.columns; }
  const int32_t* sums() const { return reinterpret_cast<const int32_t*>(data + shape.sums_offset()); }
};

// One row as files have it, of the formats with codes: codes[columns], scales[scales_of_row()]. A row or block with a
// value that is not a finite number gets the scale NaN. Scales of blocks are numbers of bf16.
void quantize_row(const PackedShape& shape, const float* w, int8_t* codes, float* scales);
// Into and out of the packed form. pack_row leaves the padding as it is: zero, in memory that was zero.
void pack_row(const PackedShape& shape, int64_t row, const int8_t* codes, const float* scales, std::byte* packed);
void unpack_row(const PackedWeight& weight, int64_t row, int8_t* codes, float* scales);

// A whole matrix [rows, columns]. `packed` has shape.bytes() bytes.
void pack_weight(const PackedShape& shape, const float* w, std::byte* packed, ThreadPool& pool);
// The numbers that a row, or rows [begin, end), stand for. `out` is [columns] or [end - begin, columns].
void dequantize_row(const PackedWeight& weight, int64_t row, float* out);
void dequantize_rows(const PackedWeight& weight, int64_t begin, int64_t end, float* out, ThreadPool& pool);

// What the format says of neighbors holds.
bool neighbors_fit(std::span<const int8_t> row);

}  // namespace linnet

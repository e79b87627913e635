// Weight matrices in 16, 8 or 4 bits: their rounding and their layout in memory.
//
// A matrix w [rows, columns] (a linear layer's [out, in], a table's [ids, width]) becomes integers q and scales s with
// w ~ q * s:
//
//   kInt8        -127..127, a float scale for each row. Products round their other operand to 8 bits and sum integers
//                (products.h).
//   kInt8Blocks  -127..127, a bf16 scale for each block of 32 neighbors in a row. Products with few rows round their
//                other operand to 16 bits, others compute in fp32.
//   kInt4Blocks  -8..7, the same.
//   kBf16        no integers: each number is rounded to the nearest of bf16. Products compute in their own precision.
//   kQ8_0...     the blocks of GGUF files, whose numbers are those of the file: w = (q - zero) * s, with some less a
//                minimum. Scales are fp16; of kQ4K and the like, fp16 for 8 blocks times an integer for each block (of
//                kQ6K for each half of one). Products as with kInt8Blocks. They are repacked, not rounded
//                (pack_blocks()).
//
// In kInt8, the positive ones of two neighbors (columns 2i and 2i + 1) add up to at most 128, the negative ones to at
// least -128. So u8 activations times them fit 16 bits (255 * 128 = 32640), and vpmaddubsw, AVX2's byte multiplication,
// never saturates. The quantizer ensures this on every processor, so that a model gives the same integers everywhere.
//
// kBf16 is stored like the matrix. In other formats 16 rows make a panel, and rows and columns are zero-padded to whole
// panels and blocks:
//   codes   [panels][blocks] of int8 [8][16][4]: columns 4g..4g+3 of 16 rows, or int4 [4][16][8]: columns 8g..8g+7, the
//           first in the lowest bits of a 32-bit word. Codes of 5 or 6 bits: behind the words of a block 16 or 32 words
//           of high bits, those of column 8g + 2b + p in byte b of a row's word: from bit 2g + p on, of two bits from
//           bit 2 (2 (g mod 2) + p) on in word g / 2
//   scales  float [panels * 16], or of blocks [panels][blocks][16]: bf16, or fp16 with the minimums behind them.
//           Of kQ4K and the like [panels][blocks / 8] of fp16 [16], then the minimums, then for each of the 8 blocks
//           the integers int8 [16] of its scales and of its minimum
//   sums    kInt8 alone: int32 [panels * 16], 128 times the sum of a row's codes: what the kernel subtracts because it
//           stores activations with 128 added
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include "base/enum_names.h"
#include "base/numbers.h"

namespace linnet {
class ThreadPool;

enum class WeightFormat : uint8_t {
  kInt8,
  kInt8Blocks,
  kInt4Blocks,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K
};
template <> inline constexpr std::array kEnumNames<WeightFormat>{
    "int8", "int8_blocks", "int4_blocks", "bf16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
constexpr bool is_file_format(WeightFormat format) { return format >= WeightFormat::kQ8_0; }

// 32 neighbors of a row: w = (code - zero) * scale [- minimum].
struct BlockFormat {
  int bits;                // of a code in words: 4, or 8
  int high_bits = 0;       // and behind the words
  int zero = 0;            // where codes are unsigned
  bool is_signed = false;  // two's complement
  bool bf16 = false;       // scales, else fp16
  bool minimum = false;
  int parts = 1;  // with a scale each
  int unit = 1;   // so many blocks share fp16 numbers and have integers of their own; 1: no integers

  // Of 16 rows and one unit.
  constexpr int64_t scale_bytes() const { return integers_offset() + (unit > 1 ? 16 * unit * (parts + minimum) : 0); }
  constexpr int64_t integers_offset() const { return 32 * (1 + minimum); }
  constexpr int64_t file_bytes() const {  // of one row
    return 4 * unit * (bits + high_bits) + 2 * (1 + minimum) + (unit == 1 ? 0 : minimum ? 12 : 16);
  }
};

constexpr BlockFormat block_format(WeightFormat format) {
  constexpr BlockFormat kFormats[] = {{.bits = 8, .is_signed = true}, {.bits = 8, .is_signed = true, .bf16 = true},
      {.bits = 4, .is_signed = true, .bf16 = true}, {.bits = 8}, {.bits = 8, .is_signed = true},  // Q8_0
      {.bits = 4, .zero = 8},                                                                     // Q4_0
      {.bits = 4, .minimum = true},                                                               // Q4_1
      {.bits = 4, .high_bits = 1, .zero = 16},                                                    // Q5_0
      {.bits = 4, .high_bits = 1, .minimum = true},                                               // Q5_1
      {.bits = 4, .minimum = true, .unit = 8},                                                    // Q4_K
      {.bits = 4, .high_bits = 1, .minimum = true, .unit = 8},                                    // Q5_K
      {.bits = 4, .high_bits = 2, .zero = 32, .parts = 2, .unit = 8}};                            // Q6_K
  return kFormats[static_cast<size_t>(format)];
}

struct PackedShape {
  static constexpr int64_t kPanel = 16, kBlock = 32;
  static constexpr int64_t kMostColumns = 65536;  // sums of kInt8 stay within 32 bits: 255 * 127 * 65536 < 2^31

  WeightFormat format = WeightFormat::kInt8;
  int64_t rows = 0, columns = 0;
  // The last rows may have another format, as files have for parts of one matrix here. They are a packed matrix behind
  // that of the first rows, which fill whole panels.
  int64_t tail_rows = 0;
  WeightFormat tail_format = WeightFormat::kInt8;

  PackedShape head() const { return {format, rows - tail_rows, columns}; }
  PackedShape tail() const { return {tail_format, tail_rows, columns}; }
  int64_t panels() const { return ceil_div(rows, kPanel); }
  int64_t blocks() const { return ceil_div(columns, kBlock); }  // of a row
  int64_t block_bytes() const {                                 // of a panel
    const BlockFormat blocks = block_format(format);
    return 64 * (blocks.bits + blocks.high_bits);
  }
  int64_t panel_bytes() const { return blocks() * block_bytes(); }
  int64_t scales_of_row() const { return format == WeightFormat::kInt8 ? 1 : blocks(); }
  int64_t panel_scale_bytes() const {
    const BlockFormat of_blocks = block_format(format);
    return blocks() / of_blocks.unit * of_blocks.scale_bytes();
  }
  size_t scales_offset() const { return static_cast<size_t>(panels() * panel_bytes()); }
  size_t sums_offset() const { return scales_offset() + static_cast<size_t>(panels() * kPanel) * sizeof(float); }
  size_t bytes() const;  // a multiple of 64

  bool operator==(const PackedShape&) const = default;
};

// The matrix in memory and its parts. Products are fastest if it is 64-byte aligned.
struct PackedWeight {
  PackedShape shape;
  const std::byte* data;

  PackedWeight head() const { return {shape.head(), data}; }
  PackedWeight tail() const { return {shape.tail(), data + shape.head().bytes()}; }
  const int8_t* codes(int64_t panel) const {
    return reinterpret_cast<const int8_t*>(data) + panel * shape.panel_bytes();
  }
  const float* row_scales() const { return reinterpret_cast<const float*>(data + shape.scales_offset()); }
  const std::byte* block_scales(int64_t panel) const {
    return data + shape.scales_offset() + panel * shape.panel_scale_bytes();
  }
  const int32_t* sums() const { return reinterpret_cast<const int32_t*>(data + shape.sums_offset()); }
};

// A scale of row `row` of the panel with these block_scales(); `part` blocks.parts: the minimum.
float block_number(const BlockFormat& blocks, const std::byte* scales, int64_t block, int64_t row, int64_t part);
// The codes of that row in the block at `block`.
void block_codes(const BlockFormat& blocks, const int8_t* block, int64_t row, int8_t* codes);

// Rounds one row to codes[columns] and scales[scales_of_row()], in formats with codes. A row or block with a value that
// is not finite gets the scale NaN. Scales of blocks are bf16 numbers.
void quantize_row(const PackedShape& shape, const float* w, int8_t* codes, float* scales);
// Does not write padding, which must be zero.
void pack_row(const PackedShape& shape, int64_t row, const int8_t* codes, const float* scales, std::byte* packed);

// Packs a matrix [rows, columns]. `packed` has shape.bytes() bytes.
void pack_weight(const PackedShape& shape, const float* w, std::byte* packed, ThreadPool& pool);
// The same in kInt8, fast enough for weights that change in every training step: each row's scale is that of its
// largest magnitude, without a search. `transposed`: w is [columns, rows]. For this process alone: with has_vnni()
// neighbors are not limited; elsewhere codes are -64..64, so that they fit. `workspace` is 64-byte aligned.
size_t quantize_weight_workspace(const PackedShape& shape, int threads);
void quantize_weight(const PackedShape& shape, const float* w, bool transposed, std::byte* packed, std::byte* workspace,
    ThreadPool& pool);
// The same for a file format; `rows`: the blocks of all rows, the tail's last.
void pack_blocks(const PackedShape& shape, const std::byte* rows, std::byte* packed, ThreadPool& pool);
// Writes rows [begin, end) as floats to `out` [end - begin, columns]. All rows of a panel cost little more than one.
void dequantize_rows(const PackedWeight& weight, int64_t begin, int64_t end, float* out);
// All rows of a matrix whose bytes are in a file, perhaps unaligned.
void dequantize_unaligned(const PackedShape& shape, const std::byte* data, float* out);
inline void dequantize_row(const PackedWeight& weight, int64_t row, float* out) {
  dequantize_rows(weight, row, row + 1, out);
}
void dequantize_rows(const PackedWeight& weight, int64_t begin, int64_t end, float* out, ThreadPool& pool);
// A panel of op(W) as products pack it (gemm/gemm_tile-inl.h), of a matrix with codes and without a tail: rows [first,
// first + depth) and columns [column, column + width), which begin at a panel. `transposed`: op(W) is [columns, rows];
// otherwise `first` is a multiple of 16.
void unpack_panel(const PackedWeight& weight, bool transposed, int64_t first, int64_t depth, int64_t column,
    int64_t width, float* out);

bool neighbors_fit(std::span<const int8_t> row);  // whether neighbors fit as kInt8 requires

// Blocks of neighbors in a row as in GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): 32 of
// them, or 256 in 8 blocks with common fp16 numbers (BlockFormat::unit).
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

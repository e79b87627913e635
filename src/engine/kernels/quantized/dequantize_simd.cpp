// The numbers of packed codes: by rows, or as panels for products.
#include <algorithm>
#include "base/error.h"
#include "engine/kernels/quantized/packed_weight.h"

#define HWY_TARGET_INCLUDE "engine/kernels/quantized/dequantize_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;

// One block of the 16 rows of a panel: value(row r, column c) becomes out[c * stride + r]. A word has a row's codes, so
// that one shift takes the same column of all rows.
template <int kBits> void panel_values(
    const BlockFormat& blocks, const int8_t* words, const float (&numbers)[3][kPanel], float* out, int64_t stride) {
  constexpr int kCodes = 32 / kBits;
  const hn::CappedTag<int32_t, kPanel> di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RebindToUnsigned<decltype(di)> du;
  const auto zero = hn::Set(di, blocks.zero);
  const auto word_at = [&](int64_t index) LINNET_LAMBDA {
    return hn::LoadU(di, reinterpret_cast<const int32_t*>(words + index * kPanel * 4));
  };
  for (int64_t row = 0; row < kPanel;
       row += static_cast<int64_t>(hn::Lanes(di)), words += hn::Lanes(di) * 4, out += hn::Lanes(di))
    for (int group = 0; group < kBits; ++group) {
      const auto word = word_at(group);
      const int first_bit = 2 * group * blocks.high_bits;
      const auto high_word = hn::BitCast(du, blocks.high_bits > 0 ? word_at(4 + first_bit / 8) : zero);
      const auto scale = hn::LoadU(df, numbers[group * blocks.parts / kBits] + row);
      const auto less = hn::LoadU(df, numbers[2] + row);
      for (int column = 0; column < kCodes; ++column) {
        auto code = hn::ShiftLeftSame(word, 32 - kBits * (column + 1));
        code = blocks.is_signed ? hn::ShiftRight<32 - kBits>(code)
                                : hn::BitCast(di, hn::ShiftRight<32 - kBits>(hn::BitCast(du, code)));
        if (blocks.high_bits > 0) {
          const int odd = column % 2, bit = 4 * (column - odd) + first_bit % 8 + odd * blocks.high_bits;
          const auto high = hn::And(hn::ShiftRightSame(high_word, bit), hn::Set(du, (1U << blocks.high_bits) - 1));
          code = hn::Or(code, hn::ShiftLeft<4>(hn::BitCast(di, high)));
        }
        auto value = hn::Mul(hn::ConvertTo(df, hn::Sub(code, zero)), scale);
        if (blocks.minimum) value = hn::Sub(value, less);
        hn::StoreU(value, df, out + (group * kCodes + column) * stride);
      }
    }
}

void block_of_panel(const PackedWeight& weight, int64_t panel, int64_t block, float* out, int64_t stride) {
  const BlockFormat blocks = block_format(weight.shape.format);
  float numbers[3][kPanel] = {};
  for (int64_t row = 0; row < kPanel; ++row) {
    for (int64_t part = 0; part < blocks.parts; ++part)
      numbers[part][row] = weight.shape.format == WeightFormat::kInt8
                               ? weight.row_scales()[panel * kPanel + row]
                               : block_number(blocks, weight.block_scales(panel), block, row, part);
    if (blocks.minimum) numbers[2][row] = block_number(blocks, weight.block_scales(panel), block, row, blocks.parts);
  }
  const int8_t* words = weight.codes(panel) + block * weight.shape.block_bytes();
  (blocks.bits == 4 ? panel_values<4> : panel_values<8>)(blocks, words, numbers, out, stride);
}

// A row of kInt8: 4 neighbors are contiguous, beside those of the panel's other rows.
void row_of_bytes(const PackedWeight& weight, int64_t row, float* out) {
  const int64_t columns = weight.shape.columns;
  const float scale = weight.row_scales()[row];
  const int8_t* words = weight.codes(row / kPanel) + row % kPanel * 4;
  for (int64_t column = 0; column < columns; column += 4, words += kPanel * 4)
    for (int64_t i = 0; i < std::min<int64_t>(4, columns - column); ++i)
      out[column + i] = static_cast<float>(words[i]) * scale;
}

void row_values(const PackedWeight& weight, int64_t first, int64_t count, float* out) {
  if (count == 1 && weight.shape.format == WeightFormat::kInt8) return row_of_bytes(weight, first, out);
  HWY_ALIGN float values[kBlock * kPanel];  // [column, row]
  const int64_t all = weight.shape.columns;
  for (int64_t column = 0; column < all; column += kBlock) {
    block_of_panel(weight, first / kPanel, column / kBlock, values, kPanel);
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < std::min(kBlock, all - column); ++i)
        out[row * all + column + i] = values[i * kPanel + first % kPanel + row];
  }
}

void unpack_panel(const PackedWeight& weight, bool transposed, int64_t first, int64_t depth, int64_t column,
    int64_t width, float* out) {
  HWY_ALIGN float values[kBlock * kPanel];  // [column, row]
  const int64_t end = first + depth;
  if (!transposed) {
    for (int64_t row = first; row < end; row += kPanel) {
      block_of_panel(weight, row / kPanel, column / kBlock, values, kPanel);
      tile::PackPanelTransposed(values + column % kBlock * kPanel, kPanel, std::min(kPanel, end - row), width,
          out + (row - first) * tile::kWidth);
    }
    return;
  }
  if (width < tile::kWidth) std::fill_n(out, depth * tile::kWidth, 0.0f);
  for (int64_t row = column; row < column + width; row += kPanel) {  // where a panel here has 8 columns: half of one
    const int64_t skip = row % kPanel, count = std::min<int64_t>(kPanel - skip, column + tile::kWidth - row);
    float* const to = out + row - column;
    for (int64_t k = first / kBlock * kBlock; k < end; k += kBlock) {
      if (k >= first && k + kBlock <= end && count == kPanel) {
        block_of_panel(weight, row / kPanel, k / kBlock, to + (k - first) * tile::kWidth, tile::kWidth);
        continue;
      }
      block_of_panel(weight, row / kPanel, k / kBlock, values, kPanel);
      for (int64_t i = std::max(k, first); i < std::min(k + kBlock, end); ++i)
        std::copy_n(values + (i - k) * kPanel + skip, count, to + (i - first) * tile::kWidth);
    }
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(row_values);
HWY_EXPORT(unpack_panel);

void dequantize_codes(const PackedWeight& weight, int64_t first, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(row_values)(weight, first, count, out);
}

void unpack_panel(const PackedWeight& weight, bool transposed, int64_t first, int64_t depth, int64_t column,
    int64_t width, float* out) {
  if (!transposed && first % PackedShape::kPanel != 0) fail_internal("a panel that begins within 16 rows of codes");
  HWY_DYNAMIC_DISPATCH(unpack_panel)(weight, transposed, first, depth, column, width, out);
}
}  // namespace linnet
#endif

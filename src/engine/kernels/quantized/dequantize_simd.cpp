// The numbers that a row of packed codes stands for.
#include <algorithm>
#include <cstring>

#include "engine/kernels/quantized/file_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantized/dequantize_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;

// One block: kBits of each code in words of 32 bits, which a vector shifts by another number in each lane.
template <int kBits>
void block_values(const BlockFormat& blocks, const int8_t* words, const float* scales, float minimum, float* out) {
  constexpr int kCodes = 32 / kBits;
  const hn::CappedTag<int32_t, kCodes> di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RebindToUnsigned<decltype(di)> du;
  const auto lanes = static_cast<int>(hn::Lanes(di));
  const auto zero = hn::Set(di, blocks.zero);
  const auto less = hn::Set(df, minimum);
  for (int group = 0; group < kBits; ++group) {
    int32_t word, high_word = 0;
    std::memcpy(&word, words + group * kPanel * 4, 4);
    const int first_bit = 2 * group * blocks.high_bits;
    if (blocks.high_bits > 0) std::memcpy(&high_word, words + (4 + first_bit / 8) * kPanel * 4, 4);
    const auto scale = hn::Set(df, scales[group * blocks.parts / kBits]);
    for (int first = 0; first < kCodes; first += lanes) {
      const auto column = hn::Iota(di, first);
      const auto left = hn::Sub(hn::Set(di, 32 - kBits), hn::Mul(column, hn::Set(di, kBits)));
      auto code = hn::Set(di, word) << left;
      code = blocks.is_signed ? hn::ShiftRight<32 - kBits>(code)
                              : hn::BitCast(di, hn::ShiftRight<32 - kBits>(hn::BitCast(du, code)));
      if (blocks.high_bits > 0) {
        const auto odd = hn::And(column, hn::Set(di, 1));
        auto bit = hn::Add(hn::ShiftLeft<2>(hn::Sub(column, odd)), hn::Set(di, first_bit % 8));
        bit = hn::Add(bit, hn::Mul(odd, hn::Set(di, blocks.high_bits)));
        const auto high = hn::And(hn::Set(du, static_cast<uint32_t>(high_word)) >> hn::BitCast(du, bit),
                                  hn::Set(du, (1U << blocks.high_bits) - 1));
        code = hn::Or(code, hn::ShiftLeft<4>(hn::BitCast(di, high)));
      }
      auto value = hn::Mul(hn::ConvertTo(df, hn::Sub(code, zero)), scale);
      if (blocks.minimum) value = hn::Sub(value, less);
      hn::StoreU(value, df, out + group * kCodes + first);
    }
  }
}

void row_values(const PackedWeight& weight, int64_t row, float* out) {
  const PackedShape& shape = weight.shape;
  const BlockFormat blocks = block_format(shape.format);
  const std::byte* numbers = weight.block_scales(row / kPanel);
  const int8_t* words = weight.codes(row / kPanel) + row % kPanel * 4;
  for (int64_t block = 0; block < shape.blocks(); ++block, words += shape.block_bytes()) {
    float scales[2], minimum = 0, values[kBlock];
    for (int64_t part = 0; part < blocks.parts; ++part)
      scales[part] = shape.format == WeightFormat::kInt8 ? weight.row_scales()[row]
                                                         : block_number(blocks, numbers, block, row % kPanel, part);
    if (blocks.minimum) minimum = block_number(blocks, numbers, block, row % kPanel, blocks.parts);
    const int64_t columns = std::min(kBlock, shape.columns - block * kBlock);
    float* to = columns == kBlock ? out + block * kBlock : values;
    (blocks.bits == 4 ? block_values<4> : block_values<8>)(blocks, words, scales, minimum, to);
    if (columns < kBlock) std::copy_n(values, columns, out + block * kBlock);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(row_values);

}  // namespace

void dequantize_codes(const PackedWeight& weight, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(row_values)(weight, row, out);
}

}  // namespace linnet
#endif

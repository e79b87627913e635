// What the forward and the backward pass of attention share.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ATTENTION_INL_H_
#undef LINNET_KERNELS_ATTENTION_INL_H_
#else
#define LINNET_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_blocking.h"
#include "kernels/gemm_pack-inl.h"
#include "kernels/gemm_tile-inl.h"
#include "kernels/philox-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {
namespace hn = hwy::HWY_NAMESPACE;

using attention_blocking::kKeyBlock;
using attention_blocking::kRowBlock;
using attention_blocking::kStride;
using tile::D;
using tile::d;
using tile::Finish;
using tile::kLanes;
using tile::kRows;
using tile::kWidth;
using tile::V;

// Scores are kept in units of log 2: exp2 is cheaper than exp, and the factor goes into the packed queries.
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// 2^x to about 1 ulp for x <= 127; 0 below the normal numbers; NaN for NaN. x = n + r with n = round(x), which adding
// 1.5 * 2^23 leaves in the low bits (the 127 there is the exponent's bias), and a polynomial for 2^r on [-1/2, 1/2]
// (Chebyshev, relative error 5e-9).
HWY_INLINE V Exp2(V x) {
  const hn::RebindToUnsigned<D> bits;
  const V shift = hn::Set(d, 12582912.0f + 127.0f);
  const V t = hn::Add(x, shift);
  const V r = hn::Sub(x, hn::Sub(t, shift));
  V p = hn::Set(d, 1.54531629e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.33908634e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.61808256e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55035711e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40226508e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93147188e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, t)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

// `count` rows dealt evenly to register tiles. Exact: one row each, so that a row takes part in no product beyond its
// own limit. That matters only when there is a NaN or infinity behind the limit, for 0 * NaN is not 0.
struct Tiles {
  Tiles(int64_t count, bool exact)
      : tiles(exact ? count : attention_blocking::ceil_div(count, kRows)),
        small(static_cast<int>(count / tiles)),
        larger(count % tiles) {}
  int64_t begin(int64_t t) const { return t * small + std::min(t, larger); }
  int rows(int64_t t) const { return small + (t < larger); }
  int64_t last(int64_t t) const { return begin(t + 1) - 1; }

  int64_t tiles;
  int small;       // rows of a tile
  int64_t larger;  // so many tiles at the start have one more
};

// A block of queries against a block of keys: which keys of the block a row of it sees.
struct Window {
  int64_t first_row, rows;  // queries
  int64_t first_key, keys;  // keys; all of them are valid
  bool causal;
  int64_t offset;  // key_length - query_length

  // Row i sees the keys [0, limit(i)) of the block.
  int64_t limit(int64_t i) const {
    return causal ? std::clamp<int64_t>(first_row + i + offset + 1 - first_key, 0, keys) : keys;
  }
  // The first row that sees key j of the block.
  int64_t first_seer(int64_t j) const {
    return causal ? std::clamp<int64_t>(first_key + j - offset - first_row, 0, rows) : 0;
  }
};

inline int64_t valid_keys(const AttentionArgs& args, int64_t sample) {
  if (!args.key_lengths) return args.key_length;
  return std::clamp<int64_t>(args.key_lengths[sample], 0, args.key_length);
}

// out[i * kStride + k] = factor * source[i * stride + k]
HWY_INLINE void PackScaledRows(const float* source, int64_t stride, int64_t rows, int64_t width, float factor,
                               float* out) {
  const V f = hn::Set(d, factor);
  for (int64_t i = 0; i < rows; ++i, source += stride, out += kStride) {
    int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) hn::StoreU(hn::Mul(f, hn::LoadU(d, source + k)), d, out + k);
    for (; k < width; ++k) out[k] = factor * source[k];
  }
}

// out = factor * x, or out += factor * x
HWY_INLINE void WriteScaled(const float* x, float factor, int64_t count, bool add, float* out) {
  const V f = hn::Set(d, factor);
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const V y = hn::Mul(f, hn::LoadU(d, x + k));
    hn::StoreU(add ? hn::Add(y, hn::LoadU(d, out + k)) : y, d, out + k);
  }
  for (; k < count; ++k) out[k] = factor * x[k] + (add ? out[k] : 0.0f);
}

// Panels of the transpose [width, rows] of `rows` rows.
HWY_INLINE void PackTransposed(const float* source, int64_t stride, int64_t rows, int64_t width, float* out) {
  for (int64_t j = 0; j < rows; j += kWidth)
    tile::PackPanelTransposed(source + j * stride, stride, width, std::min<int64_t>(kWidth, rows - j), out + j * width);
}

// Panels of [rows, width].
HWY_INLINE void PackPanels(const float* source, int64_t stride, int64_t rows, int64_t width, float* out) {
  for (int64_t k = 0; k < width; k += kWidth)
    tile::PackPanel(source + k, stride, rows, std::min<int64_t>(kWidth, width - k), out + k * rows);
}

// Whether the packed panels of [rows, width] hold no NaN or infinity.
HWY_INLINE bool AllFinite(const float* panels, int64_t rows, int64_t width) {
  V sum = hn::Zero(d);
  for (int64_t i = 0; i < rows * attention_blocking::round_up(width, kWidth); i += kLanes)
    sum = hn::MulAdd(hn::Load(d, panels + i), hn::Zero(d), sum);  // 0, unless one of them is not finite
  return hn::GetLane(hn::SumOfLanes(d, sum)) == 0;
}

// scores[rows, keys] = a[rows, width] times the panels of a transpose, where the window lets any row of a tile see any
// key of a panel. Up to a panel's width of what lies behind a limit is written too, and means nothing.
HWY_INLINE void Scores(const Window& window, int64_t width, const float* a, const float* panels, float* scores) {
  const Tiles tiles(window.rows, false);
  for (int64_t j = 0; j < window.keys; j += kWidth, panels += width * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      if (window.limit(tiles.last(t)) <= j) continue;
      const int64_t i = tiles.begin(t) * kStride;
      tile::kStridedTiles<kStride, 1>[tiles.rows(t)](width, a + i, panels, scores + i + j, kStride, Finish{});
    }
}

// out[rows, width] (+)= weights[rows, keys] times the panels of [keys, width]; out has rows of `out_stride`.
HWY_INLINE void WeighKeys(const Window& window, bool exact, int64_t width, const float* weights, const float* panels,
                          float* out, int64_t out_stride, bool accumulate) {
  const Tiles tiles(window.rows, exact);
  for (int64_t k = 0; k < width; k += kWidth, panels += window.keys * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t i = tiles.begin(t);
      tile::kStridedTiles<kStride, 1>[tiles.rows(t)](window.limit(tiles.last(t)), weights + i * kStride, panels,
                                                     out + i * out_stride + k, out_stride, Finish{accumulate});
    }
}

struct Dropout {
  explicit Dropout(const AttentionArgs& args)
      : active(args.dropout > 0),
        threshold(active ? static_cast<int32_t>(dropout_threshold(args.dropout)) : 0),
        scale(active ? dropout_scale(args.dropout) : 1.0f),
        key(args.dropout_key) {}

  // Zero where dropout says, given the random values of these lanes.
  HWY_INLINE V keep(V x, const uint16_t* values) const {
    const hn::RebindToSigned<D> d32;
    const hn::Rebind<uint16_t, D> d16;
    const auto drawn = hn::PromoteTo(d32, hn::LoadU(d16, values));
    return hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(drawn, hn::Set(d32, threshold - 1))), x);
  }

  bool active;
  int32_t threshold;
  float scale;
  uint64_t key;
};

// The random values of a window, row after row (kernels/philox.h). Short rows are drawn several at a time.
class RandomRows {
 public:
  RandomRows(const Dropout& dropout, const Window& window, int64_t head, int64_t sample, uint16_t* values)
      : window_(window),
        key_(dropout.key),
        head_(static_cast<uint32_t>(head)),
        sample_(static_cast<uint32_t>(sample)),
        blocks_(std::bit_ceil(static_cast<uint64_t>(window.keys + 7) / 8)),
        values_(values) {}

  // At least for the keys [0, limit) of row i. Valid until the next call.
  HWY_INLINE const uint16_t* row(int64_t i, int64_t limit) {
    const auto block = static_cast<uint32_t>(window_.first_key / 8),
               query = static_cast<uint32_t>(window_.first_row + i);
    if (blocks_ > kLanes / 2) {
      for (int64_t b = 0; 8 * b < limit; b += kLanes)
        PhiloxKeep16(block + static_cast<uint32_t>(b), query, head_, sample_, key_, values_ + 8 * b);
      return values_;
    }
    if (drawn_ < 0 || i >= drawn_ + kLanes / blocks_) {
      PhiloxRows16(block, blocks_, query, head_, sample_, key_, values_);
      drawn_ = i;
    }
    return values_ + (i - drawn_) * blocks_ * 8;
  }

 private:
  const Window& window_;
  uint64_t key_;
  uint32_t head_, sample_;
  int64_t blocks_;  // of eight keys in a row
  uint16_t* values_;
  int64_t drawn_ = -1;  // values_ starts with this row
};

}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

#endif

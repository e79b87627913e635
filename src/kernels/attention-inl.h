// What the forward and the backward pass of attention share.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ATTENTION_INL_H_
#undef LINNET_KERNELS_ATTENTION_INL_H_
#else
#define LINNET_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_blocking.h"
#include "kernels/gemm_pack-inl.h"
#include "kernels/gemm_tile-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/philox-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {
namespace hn = hwy::HWY_NAMESPACE;

using attention_blocking::kKeyBlock;
using attention_blocking::kQueryBlock;
using attention_blocking::kRowStride;
using attention_blocking::kScoreStride;
using tile::D;
using tile::d;
using tile::Finish;
using tile::kLanes;
using tile::kRows;
using tile::kWidth;
using tile::V;

// Scores are kept in units of log 2: exp2 is cheaper than exp, and the factor goes into the packed keys.
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

// A block of queries against a block of keys: which keys of the block a query of it sees.
struct Window {
  int64_t first_query, queries;
  int64_t first_key, keys;  // all of them are valid
  bool causal;
  int64_t offset;  // key_length - query_length

  // Query i sees the keys [0, limit(i)) of the block.
  int64_t limit(int64_t i) const {
    return causal ? std::clamp<int64_t>(first_query + i + offset + 1 - first_key, 0, keys) : keys;
  }
  // The first query that sees key j of the block; `queries` if there is none.
  int64_t first_seer(int64_t j) const {
    return causal ? std::clamp<int64_t>(first_key + j - offset - first_query, 0, queries) : 0;
  }
};

inline int64_t valid_keys(const AttentionArgs& args, int64_t sample) {
  if (!args.key_lengths) return args.key_length;
  return std::clamp<int64_t>(args.key_lengths[sample], 0, args.key_length);
}

// out[i * kRowStride + k] = factor * source[i * stride + k]
HWY_INLINE void PackScaledRows(const float* source, int64_t stride, int64_t rows, int64_t width, float factor,
                               float* out) {
  const V f = hn::Set(d, factor);
  for (int64_t i = 0; i < rows; ++i, source += stride, out += kRowStride) {
    int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) hn::StoreU(hn::Mul(f, hn::LoadU(d, source + k)), d, out + k);
    if (k < width) StorePart(hn::Mul(f, LoadPart(source + k, width - k)), out + k, width - k);
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
  if (k == count) return;
  const V y = hn::Mul(f, LoadPart(x + k, count - k));
  StorePart(add ? hn::Add(y, LoadPart(out + k, count - k)) : y, out + k, count - k);
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

// The register tile for the last columns of a panel: one vector wide where that is enough.
template <int kRow, int kColumn>
HWY_INLINE tile::TileFunction TileFor(int rows, int64_t columns) {
  return columns > kLanes ? tile::kStridedTiles<kRow, kColumn>[rows] : tile::kStridedTiles<kRow, kColumn, 1>[rows];
}

// scores[keys, queries] = rows[keys, width] times the panels of [width, queries], where any query of a panel sees any
// key of a tile. What is written where a query does not see a key means nothing.
HWY_INLINE void Scores(const Window& window, int64_t width, const float* rows, const float* panels, float* scores) {
  const Tiles tiles(window.keys, false);
  for (int64_t i = 0; i < window.queries; i += kWidth, panels += width * kWidth) {
    const int64_t columns = std::min<int64_t>(kWidth, window.queries - i);
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t j = tiles.begin(t);
      if (window.first_seer(j) >= i + columns) break;  // and neither do they see later keys
      TileFor<kRowStride, 1>(tiles.rows(t), columns)(width, rows + j * kRowStride, panels,
                                                     scores + j * kScoreStride + i, kScoreStride, Finish{});
    }
  }
}

// out[queries, width] (+)= weights[keys, queries]^T times the panels of [keys, width].
HWY_INLINE void WeighKeys(const Window& window, bool exact, int64_t width, const float* weights, const float* panels,
                          float* out, int64_t out_stride, bool accumulate) {
  const Tiles tiles(window.queries, exact);
  for (int64_t k = 0; k < width; k += kWidth, panels += window.keys * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t i = tiles.begin(t);
      TileFor<1, kScoreStride>(tiles.rows(t), width - k)(window.limit(tiles.last(t)), weights + i, panels,
                                                         out + i * out_stride + k, out_stride, Finish{accumulate});
    }
}

// out[keys, width] += weights[keys, queries] times the panels of [queries, width], over the queries that see a key.
HWY_INLINE void WeighQueries(const Window& window, bool exact, int64_t width, const float* weights, const float* panels,
                             float* out, int64_t out_stride) {
  const Tiles tiles(window.keys, exact);
  for (int64_t k = 0; k < width; k += kWidth, panels += window.queries * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t j = tiles.begin(t), first = window.first_seer(j);
      if (first >= window.queries) break;  // and neither does any see later keys
      TileFor<kScoreStride, 1>(tiles.rows(t), width - k)(window.queries - first, weights + j * kScoreStride + first,
                                                         panels + first * kWidth, out + j * out_stride + k, out_stride,
                                                         Finish{true});
    }
}

// Dropout of the probabilities of a vector of queries (kernels/philox.h).
class Dropout {
 public:
  Dropout(const AttentionArgs& args, int64_t sample, float* random)
      : active(args.dropout > 0),
        scale(active ? dropout_scale(args.dropout) : 1.0f),
        key_(args.dropout_key),
        threshold_(active ? dropout_threshold(args.dropout) << 16 : 0),
        sample_(static_cast<uint32_t>(sample)),
        random_(reinterpret_cast<uint32_t*>(random)) {}

  // Draws for eight keys from `key`, a multiple of 8, and the kLanes queries from `query`. One counter gives the values
  // of eight keys, so a lane holds the counter of its query. The value of key t is left in the upper half of row t.
  HWY_INLINE void draw(int64_t key, int64_t query, int64_t head) const {
    const PhiloxTag d64;
    const hn::Repartition<uint32_t, PhiloxTag> d32;
    const PhiloxLanes lane = hn::Iota(d64, 0),
                      even = hn::Add(hn::Set(d64, static_cast<uint64_t>(query)), hn::Add(lane, lane));
    const auto words = PhiloxWords({hn::Set(d64, static_cast<uint64_t>(key / 8)), even,
                                    hn::Set(d64, static_cast<uint64_t>(head)), hn::Set(d64, sample_)},
                                   {hn::Set(d64, static_cast<uint64_t>(key / 8)), hn::Add(even, hn::Set(d64, 1)),
                                    hn::Set(d64, static_cast<uint64_t>(head)), hn::Set(d64, sample_)},
                                   key_);
    const auto store = [&](hn::Vec<decltype(d32)> word, int t) HWY_ATTR {
      hn::Store(hn::ShiftLeft<16>(word), d32, random_ + t * kLanes);
      hn::Store(word, d32, random_ + (t + 1) * kLanes);
    };
    store(words.w0, 0);
    store(words.w1, 2);
    store(words.w2, 4);
    store(words.w3, 6);
  }

  // x, or zero where key t of the eight is dropped.
  HWY_INLINE V keep(V x, int64_t t) const {
    const hn::RebindToUnsigned<D> d32;
    const auto dropped = hn::Lt(hn::Load(d32, random_ + t * kLanes), hn::Set(d32, threshold_));
    return hn::IfThenZeroElse(hn::RebindMask(d, dropped), x);
  }

  const bool active;
  const float scale;

 private:
  const uint64_t key_;
  const uint32_t threshold_, sample_;
  uint32_t* const random_;
};

// Calls body(j, keeps, t) for the keys that any of the kLanes queries from i sees, where keeps(x) zeroes the lanes that
// do not see key j, and t is its number for Dropout::keep. Draws the random values on the way.
template <class Body>
HWY_INLINE void ForKeys(const Window& window, int64_t i, const Dropout& dropout, int64_t head, const Body& body) {
  const int64_t end = window.limit(std::min(i + kLanes, window.queries) - 1), seen_by_all = window.limit(i);
  const V lane = hn::Iota(d, static_cast<float>(i));
  for (int64_t j = 0; j < end; j += 8) {
    if (dropout.active) dropout.draw(window.first_key + j, window.first_query + i, head);
    const int64_t count = std::min<int64_t>(8, end - j);
    if (j + count <= seen_by_all) {
      for (int64_t t = 0; t < count; ++t)
        body(
            j + t, [](V x) HWY_ATTR { return x; }, t);
    } else {
      for (int64_t t = 0; t < count; ++t) {
        const auto unseen = hn::Lt(lane, hn::Set(d, static_cast<float>(window.first_seer(j + t))));
        body(
            j + t, [unseen](V x) HWY_ATTR { return hn::IfThenZeroElse(unseen, x); }, t);
      }
    }
  }
}

// Zeros behind the keys that the kLanes queries from i see, as far as a tile that holds one of them may reach.
HWY_INLINE void ClearUnseen(const Window& window, int64_t i, float* scores) {
  const int64_t begin = window.limit(std::min(i + kLanes, window.queries) - 1);
  for (int64_t j = begin; j < std::min(window.keys, begin + kRows); ++j)
    hn::Store(hn::Zero(d), d, scores + j * kScoreStride + i);
}

}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

#endif

// Packing: operands copied into the order in which the register tile reads them, and rounded if it multiplies in less
// than fp32.
//  A policy P (F32 here, Bf16 in gemm_bf16-inl.h) says how P::kPair values, neighbors along k, make a packed element.
// `depth` counts values of k; a packed operand is ceil(depth / kPair) elements deep, an odd end filled up by zero. T is
// the type of the values in memory: float, or for the policy Bf16 also Bfloat16, packed as it is.
#if defined(LINNET_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_PACK_INL_H_
#undef LINNET_KERNELS_GEMM_PACK_INL_H_
#else
#define LINNET_KERNELS_GEMM_PACK_INL_H_
#endif

#include <algorithm>
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
// Four floats, or fewer with shorter vectors.
template <class DD> HWY_INLINE hn::Vec<DD> LoadFour(DD dd, const float* p) { return hn::LoadU(dd, p); }
template <class DD> HWY_INLINE hn::Vec<DD> LoadFour(DD dd, const Bfloat16* p) {
  const hn::RebindToUnsigned<DD> du;
  return hn::BitCast(dd, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, DD>(), Bits(p)))));
}

// One vector of four floats from each of kLanes / 4 rows: rows[0], rows[4], rows[8], ... at column k.
template <class DD, class T> HWY_INLINE hn::Vec<DD> LoadFloatQuads(DD dd, const T* const* rows, int64_t k) {
  if constexpr (hn::MaxLanes(DD()) <= 4) {
    return LoadFour(dd, rows[0] + k);
  } else {
    const hn::Half<DD> half;
    return hn::Combine(dd, LoadFloatQuads(half, rows + hn::MaxLanes(DD()) / 2, k), LoadFloatQuads(half, rows, k));
  }
}

struct F32Pack : F32 {
  // Four packed elements from each of kLanes / 4 rows (every fourth of `rows`), from value k on.
  template <class T> static HWY_INLINE V LoadQuads(const T* const* rows, int64_t k) {
    return LoadFloatQuads(d, rows, k);
  }
  // The packed element of value k of a row that ends at `depth`.
  template <class T> static HWY_INLINE float Element(const T* row, int64_t k, int64_t) { return row[k]; }
  // A vector of packed elements from `rows` <= kPair rows of a matrix whose rows follow k.
  template <class T, class Lanes> static HWY_INLINE V LoadAcross(const T* source, int64_t, int64_t, const Lanes& at) {
    return at.load(source);
  }
  static HWY_INLINE void PackRow(const float* source, int64_t depth, float* out) {
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) hn::StoreU(hn::LoadU(d, source + k), d, out + k);
    if (k < depth) hn::StoreU(PartLanes{0, depth - k}.load(source + k), d, out + k);  // kRowStride leaves room
  }
};

// Half a panel, transposed: out[k * kWidth + j] = source[j * stride + k] for j < kLanes. Rows past `width` repeat the
// last one: their columns of the product are never used.
template <class P, class T>
HWY_INLINE void PackHalfTransposed(const T* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  const hn::Repartition<double, D> d64;
  const T* rows[kLanes];
  for (int j = 0; j < kLanes; ++j) rows[j] = source + std::min<int64_t>(j, width - 1) * stride;
  int64_t k = 0;
  for (; k + 4 * P::kPair <= depth; k += 4 * P::kPair, out += 4 * kWidth) {  // 4 x 4 transposes, in every 128-bit part
    const V r0 = P::LoadQuads(rows, k), r1 = P::LoadQuads(rows + 1, k);
    const V r2 = P::LoadQuads(rows + 2, k), r3 = P::LoadQuads(rows + 3, k);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + kWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * kWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * kWidth);
  }
  for (; k < depth; k += P::kPair, out += kWidth)
    for (int j = 0; j < kLanes; ++j) out[j] = P::Element(rows[j], k, depth);
}

// A panel [depth, kWidth] from the first `width` rows of a matrix [width, depth]: out[k, j] = source[j, k].
template <class P = F32Pack, class T>
HWY_INLINE void PackPanelTransposed(const T* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  PackHalfTransposed<P>(source, stride, depth, width, out);
  if (width > kLanes) {
    PackHalfTransposed<P>(source + kLanes * stride, stride, depth, width - kLanes, out + kLanes);
  } else {
    for (int64_t k = 0; k < depth; k += P::kPair, out += kWidth) hn::Store(hn::Zero(d), d, out + kLanes);
  }
}

constexpr int kRowsAhead = 16;  // rows of memory that are fetched before they are packed: the latency of L3

// Panels of the first `columns` columns of a matrix [depth, stride]: column j of panel p goes to out[p * distance + k *
// kWidth + j], zeros past the last. Reads rows sequentially.
template <class P, class T> HWY_INLINE void PackPanels(
    const T* source, int64_t stride, int64_t depth, int64_t columns, int64_t distance, float* out) {
  const WholeLanes whole{0};
  for (int64_t k = 0; k < depth; k += P::kPair, source += P::kPair * stride, out += kWidth) {
    const int64_t rows = depth - k;
    const T* from = source;
    float* to = out;
    int64_t left = columns;
    for (; left >= kWidth; left -= kWidth, from += kWidth, to += distance) {
      for (int64_t i = kRowsAhead; i < kRowsAhead + P::kPair; ++i) {
        hwy::Prefetch(from + i * stride);
        hwy::Prefetch(from + i * stride + kLanes);
      }
      hn::Store(P::LoadAcross(from, stride, rows, whole), d, to);
      hn::Store(P::LoadAcross(from + kLanes, stride, rows, whole), d, to + kLanes);
    }
    if (left >= kLanes) {
      hn::Store(P::LoadAcross(from, stride, rows, whole), d, to);
      hn::Store(P::LoadAcross(from + kLanes, stride, rows, PartLanes{0, left - kLanes}), d, to + kLanes);
    } else if (left > 0) {
      hn::Store(P::LoadAcross(from, stride, rows, PartLanes{0, left}), d, to);
      hn::Store(hn::Zero(d), d, to + kLanes);
    }
  }
}

template <class P = F32Pack, class T>
HWY_INLINE void PackPanel(const T* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  PackPanels<P>(source, stride, depth, width, 0, out);
}

// Rows of A: out[i * kRowStride + k] = source[i * stride + k].
template <class P, class T>
HWY_INLINE void PackRows(const T* source, int64_t stride, int64_t depth, int64_t rows, float* out) {
  for (int64_t i = 0; i < rows; ++i) P::PackRow(source + i * stride, depth, out + i * kRowStride);
}

// A tile of a transposed A, one step along k: out[i] = source[i] for i < kColumnStride.
template <class P, class T> HWY_INLINE void PackColumn(const T* source, int64_t stride, int64_t rows, float* out) {
  for (int64_t i = kRowsAhead; i < kRowsAhead + P::kPair; ++i) hwy::Prefetch(source + i * stride);
  for (int i = 0; i < kColumnStride; i += kLanes)
    hn::Store(P::LoadAcross(source + i, stride, rows, WholeLanes{0}), d, out + i);
}
// The same if a row has only `readable` values.
template <class P, class T>
HWY_INLINE void PackLastColumn(const T* source, int64_t stride, int64_t rows, int64_t readable, float* out) {
  for (int i = 0; i < kColumnStride && i < readable; i += kLanes) {
    if (readable - i >= kLanes) {
      hn::Store(P::LoadAcross(source + i, stride, rows, WholeLanes{0}), d, out + i);
    } else {
      hn::Store(P::LoadAcross(source + i, stride, rows, PartLanes{0, readable - i}), d, out + i);
    }
  }
}
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

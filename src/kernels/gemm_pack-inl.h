// Packing: operands copied into the order in which the register tile reads them.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_PACK_INL_H_
#undef LINNET_KERNELS_GEMM_PACK_INL_H_
#else
#define LINNET_KERNELS_GEMM_PACK_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/gemm_tile-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

// One vector of four floats from each of kLanes / 4 rows: rows[0], rows[4], rows[8], ... at column k.
template <class DD>
HWY_INLINE hn::Vec<DD> LoadQuads(DD dd, const float* const* rows, int64_t k) {
  if constexpr (hn::MaxLanes(DD()) <= 4) {
    return hn::LoadU(dd, rows[0] + k);
  } else {
    const hn::Half<DD> half;
    return hn::Combine(dd, LoadQuads(half, rows + hn::MaxLanes(DD()) / 2, k), LoadQuads(half, rows, k));
  }
}

// Half a panel, transposed: out[k * kWidth + j] = source[j * stride + k] for j < kLanes. Rows past `width` repeat the
// last one: their columns of the product are never used.
HWY_INLINE void PackHalfTransposed(const float* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  const hn::Repartition<double, D> d64;
  const float* rows[kLanes];
  for (int j = 0; j < kLanes; ++j) rows[j] = source + std::min<int64_t>(j, width - 1) * stride;
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {  // 4 x 4 transposes, in every 128-bit part at once
    const V r0 = LoadQuads(d, rows, k), r1 = LoadQuads(d, rows + 1, k);
    const V r2 = LoadQuads(d, rows + 2, k), r3 = LoadQuads(d, rows + 3, k);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    float* o = out + k * kWidth;
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, o);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, o + kWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, o + 2 * kWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, o + 3 * kWidth);
  }
  for (; k < depth; ++k)
    for (int j = 0; j < kLanes; ++j) out[k * kWidth + j] = rows[j][k];
}

// A panel [depth, kWidth] from the first `width` rows of a matrix stored [width, depth]: out[k, j] = source[j, k].
HWY_INLINE void PackPanelTransposed(const float* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  PackHalfTransposed(source, stride, depth, width, out);
  if (width > kLanes) {
    PackHalfTransposed(source + kLanes * stride, stride, depth, width - kLanes, out + kLanes);
  } else {
    for (int64_t k = 0; k < depth; ++k) hn::Store(hn::Zero(d), d, out + k * kWidth + kLanes);
  }
}

// A panel [depth, kWidth] from the first `width` columns of a matrix stored [depth, stride], zeros past them.
HWY_INLINE void PackPanel(const float* source, int64_t stride, int64_t depth, int64_t width, float* out) {
  if (width == kWidth) {
    for (int64_t k = 0; k < depth; ++k, source += stride, out += kWidth) {
      hn::Store(hn::LoadU(d, source), d, out);
      hn::Store(hn::LoadU(d, source + kLanes), d, out + kLanes);
    }
  } else if (width >= kLanes) {
    for (int64_t k = 0; k < depth; ++k, source += stride, out += kWidth) {
      hn::Store(hn::LoadU(d, source), d, out);
      hn::Store(LoadPart(source + kLanes, width - kLanes), d, out + kLanes);
    }
  } else {
    for (int64_t k = 0; k < depth; ++k, source += stride, out += kWidth) {
      hn::Store(LoadPart(source, width), d, out);
      hn::Store(hn::Zero(d), d, out + kLanes);
    }
  }
}

// Rows of A for kStridedTiles<kRowStride, 1>: out[i * kRowStride + k] = source[i * stride + k].
HWY_INLINE void PackRows(const float* source, int64_t stride, int64_t depth, int64_t rows, float* out) {
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(out + i * kRowStride, source + i * stride, static_cast<size_t>(depth) * sizeof(float));
}

// Distance between packed tiles of `rows` rows. By columns, with room for what PackColumns writes past the end.
HWY_INLINE int64_t PackedTile(bool by_columns, int64_t rows, int64_t depth) {
  return by_columns ? rows * depth + kLanes : rows * kRowStride;
}

// Columns of a transposed A for kColumnTiles: out[k * rows + i] = source[k * stride + i]. `readable` floats of each
// source row may be read. Writes up to kLanes floats past the end.
HWY_INLINE void PackColumns(const float* source, int64_t stride, int64_t depth, int64_t rows, int64_t readable,
                            float* out) {
  if (readable >= kLanes) {
    for (int64_t k = 0; k < depth; ++k, source += stride, out += rows) {
      hn::StoreU(hn::LoadU(d, source), d, out);
      for (int64_t i = kLanes; i < rows; ++i) out[i] = source[i];
    }
  } else {
    for (int64_t k = 0; k < depth; ++k, source += stride, out += rows)
      for (int64_t i = 0; i < rows; ++i) out[i] = source[i];
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

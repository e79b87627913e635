// Products with few rows (decoding a token at a time) or few columns (small classifiers): the large operand is read
// once, in place, instead of being packed. Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction
// set).
#if defined(LINNET_KERNELS_GEMM_SMALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_SMALL_INL_H_
#undef LINNET_KERNELS_GEMM_SMALL_INL_H_
#else
#define LINNET_KERNELS_GEMM_SMALL_INL_H_
#endif

#include <algorithm>
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/stored_floats.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

// Where the dot products of a few rows x[i] with many rows y[j] go: element (i, j) to c[i * x_stride + j * y_stride],
// with bias[i * x_bias + j * y_bias].
struct DotOutput {
  float* c;
  int64_t x_stride, y_stride;
  const float* bias;
  int64_t x_bias, y_bias;
  const float* added;  // where C is, or a residual; or nullptr
  bool relu;

  HWY_INLINE void write(int64_t i, int64_t j, float sum) const {
    const int64_t location = i * x_stride + j * y_stride;
    if (added) sum += added[location];
    if (bias) sum += bias[i * x_bias + j * y_bias];
    c[location] = relu && sum < 0 ? 0.0f : sum;
  }
};

HWY_INLINE V LoadFloats(const float* from) { return hn::LoadU(d, from); }
HWY_INLINE V LoadFloats(const Bfloat16* from) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

constexpr int kDotColumns = kLanes >= 16 ? 4 : 2;

// M rows of x by N rows of y, lanes along k; i and j are the first of them.
template <int M, int N, class T>
HWY_INLINE void DotTile(int64_t depth, const float* HWY_RESTRICT x, int64_t ldx, const T* HWY_RESTRICT y, int64_t ldy,
                        int64_t i, int64_t j, const DotOutput& output) {
  x += i * ldx;
  y += j * ldy;
  V r[M][N];
#pragma GCC unroll 4
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) r[p][q] = hn::Zero(d);
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    V b[N];
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) b[q] = LoadFloats(y + q * ldy + k);
#pragma GCC unroll 4
    for (int p = 0; p < M; ++p) {
      const V a = hn::LoadU(d, x + p * ldx + k);
#pragma GCC unroll 4
      for (int q = 0; q < N; ++q) r[p][q] = hn::MulAdd(a, b[q], r[p][q]);
    }
  }
  HWY_ALIGN float lanes[M][N][kLanes];  // added up in loops, for a short program
#pragma GCC unroll 4
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) hn::Store(r[p][q], d, lanes[p][q]);
#pragma GCC unroll 1
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 1
    for (int q = 0; q < N; ++q) {
      float sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, lanes[p][q])));
      for (int64_t t = k; t < depth; ++t) sum += x[p * ldx + t] * static_cast<float>(y[q * ldy + t]);
      output.write(i + p, j + q, sum);
    }
}

template <int M, class T>
HWY_INLINE void DotRows(int64_t depth, const float* x, int64_t ldx, const T* y, int64_t ldy, int64_t i, int64_t begin,
                        int64_t end, const DotOutput& output) {
  int64_t j = begin;
  for (; j + kDotColumns <= end; j += kDotColumns) DotTile<M, kDotColumns>(depth, x, ldx, y, ldy, i, j, output);
  for (; j < end; ++j) DotTile<M, 1>(depth, x, ldx, y, ldy, i, j, output);
}

// All `few` rows of x by the rows [begin, end) of y. A strip of y stays in the cache while the rows of x pass by.
template <class T>
HWY_INLINE void SmallDots(int64_t few, int64_t depth, const float* x, int64_t ldx, const T* y, int64_t ldy,
                          int64_t begin, int64_t end, const DotOutput& output) {
  for (constexpr int64_t kStrip = 16; begin < end; begin += kStrip) {
    const int64_t strip = std::min(end, begin + kStrip);
    int64_t i = 0;
    for (; i + 4 <= few; i += 4) DotRows<4>(depth, x, ldx, y, ldy, i, begin, strip, output);
    if (few - i == 3) DotRows<3>(depth, x, ldx, y, ldy, i, begin, strip, output);
    if (few - i == 2) DotRows<2>(depth, x, ldx, y, ldy, i, begin, strip, output);
    if (few - i == 1) DotRows<1>(depth, x, ldx, y, ldy, i, begin, strip, output);
  }
}

// Columns [begin, end) of c[M, n] <- a[M, depth] b[depth, n], two vectors of columns at a time.
template <int M>
HWY_INLINE void WideColumns(int64_t depth, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                            int64_t ldb, float* c, int64_t ldc, int64_t begin, int64_t end, const Finish& finish) {
  const float* added = finish.accumulate ? c : finish.residual;
  int64_t j = begin;
  for (; j + kWidth <= end; j += kWidth) {
    V r[M][2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) r[i][0] = r[i][1] = hn::Zero(d);
    for (int64_t k = 0; k < depth; ++k) {
      const V b0 = hn::LoadU(d, b + k * ldb + j), b1 = hn::LoadU(d, b + k * ldb + j + kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        const V x = hn::Set(d, a[i * lda + k]);
        r[i][0] = hn::MulAdd(x, b0, r[i][0]);
        r[i][1] = hn::MulAdd(x, b1, r[i][1]);
      }
    }
    for (int i = 0; i < M; ++i)
      for (int h = 0; h < 2; ++h) {
        float* out = c + i * ldc + j + h * kLanes;
        V x = r[i][h];
        if (added) x = hn::Add(x, hn::LoadU(d, added + (out - c)));
        if (finish.bias) x = hn::Add(x, hn::LoadU(d, finish.bias + j + h * kLanes));
        hn::StoreU(finish.relu ? Relu(x) : x, d, out);
      }
  }
  for (; j < end; j += kLanes) {  // the rest, a vector or a part of one at a time
    const int64_t count = std::min<int64_t>(kLanes, end - j);
    const auto load = [count](const float* p)
                          HWY_ATTR { return count == kLanes ? hn::LoadU(d, p) : LoadPart(p, count); };
    V r[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) r[i] = hn::Zero(d);
    for (int64_t k = 0; k < depth; ++k) {
      const V y = load(b + k * ldb + j);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) r[i] = hn::MulAdd(hn::Set(d, a[i * lda + k]), y, r[i]);
    }
    for (int i = 0; i < M; ++i) {
      V x = r[i];
      if (added) x = hn::Add(x, load(added + i * ldc + j));
      if (finish.bias) x = hn::Add(x, load(finish.bias + j));
      if (finish.relu) x = Relu(x);
      if (count == kLanes) {
        hn::StoreU(x, d, c + i * ldc + j);
      } else {
        StorePart(x, c + i * ldc + j, count);
      }
    }
  }
}

HWY_INLINE void SmallPlain(int64_t m, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                           int64_t ldc, int64_t begin, int64_t end, Finish finish) {
  for (; m > 0; m -= 4, a += 4 * lda, c += 4 * ldc, finish.residual += finish.residual ? 4 * ldc : 0) {
    switch (m) {
      case 1: WideColumns<1>(depth, a, lda, b, ldb, c, ldc, begin, end, finish); break;
      case 2: WideColumns<2>(depth, a, lda, b, ldb, c, ldc, begin, end, finish); break;
      case 3: WideColumns<3>(depth, a, lda, b, ldb, c, ldc, begin, end, finish); break;
      default: WideColumns<4>(depth, a, lda, b, ldb, c, ldc, begin, end, finish); break;
    }
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

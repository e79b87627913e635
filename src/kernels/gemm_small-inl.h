// Products with few rows (decoding a token at a time): B is read once, in place, instead of being packed.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_GEMM_SMALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_SMALL_INL_H_
#undef LINNET_KERNELS_GEMM_SMALL_INL_H_
#else
#define LINNET_KERNELS_GEMM_SMALL_INL_H_
#endif

#include "kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

constexpr int kDotColumns = kLanes >= 16 ? 4 : 2;

HWY_INLINE void FinishOne(float x, float* c, const float* bias, const Finish& finish) {
  if (finish.accumulate) x += *c;
  if (bias) x += *bias;
  *c = finish.relu && x < 0 ? 0.0f : x;
}

// c[M, N] <- a[M, depth] b[N, depth]^T: dot products, lanes along k.
template <int M, int N>
HWY_INLINE void DotTile(int64_t depth, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                        int64_t ldb, float* HWY_RESTRICT c, int64_t ldc, const Finish& finish) {
  V r[M][N];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) r[i][j] = hn::Zero(d);
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    V y[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) y[j] = hn::LoadU(d, b + j * ldb + k);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const V x = hn::LoadU(d, a + i * lda + k);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) r[i][j] = hn::MulAdd(x, y[j], r[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      float sum = hn::GetLane(hn::SumOfLanes(d, r[i][j]));
      for (int64_t t = k; t < depth; ++t) sum += a[i * lda + t] * b[j * ldb + t];
      FinishOne(sum, c + i * ldc + j, finish.bias ? finish.bias + j : nullptr, finish);
    }
}

// Columns [begin, end) of c[m, n] <- a[m, depth] b[n, depth]^T.
template <int M>
HWY_INLINE void DotColumns(int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                           int64_t ldc, int64_t begin, int64_t end, const Finish& finish) {
  Finish at = finish;
  int64_t j = begin;
  for (; j < end;) {
    at.bias = finish.bias ? finish.bias + j : nullptr;
    if (j + kDotColumns <= end) {
      DotTile<M, kDotColumns>(depth, a, lda, b + j * ldb, ldb, c + j, ldc, at);
      j += kDotColumns;
    } else {
      DotTile<M, 1>(depth, a, lda, b + j * ldb, ldb, c + j, ldc, at);
      ++j;
    }
  }
}

HWY_INLINE void SmallTransposed(int64_t m, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb,
                                float* c, int64_t ldc, int64_t begin, int64_t end, const Finish& finish) {
  for (; m > 0; m -= 4, a += 4 * lda, c += 4 * ldc) {
    switch (m) {
      case 1:
        DotColumns<1>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      case 2:
        DotColumns<2>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      case 3:
        DotColumns<3>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      default:
        DotColumns<4>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
    }
  }
}

// Columns [begin, end) of c[M, n] <- a[M, depth] b[depth, n], two vectors of columns at a time.
template <int M>
HWY_INLINE void WideColumns(int64_t depth, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                            int64_t ldb, float* HWY_RESTRICT c, int64_t ldc, int64_t begin, int64_t end,
                            const Finish& finish) {
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
        if (finish.accumulate) x = hn::Add(x, hn::LoadU(d, out));
        if (finish.bias) x = hn::Add(x, hn::LoadU(d, finish.bias + j + h * kLanes));
        hn::StoreU(finish.relu ? Relu(x) : x, d, out);
      }
  }
  for (; j < end; ++j)
    for (int i = 0; i < M; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += a[i * lda + k] * b[k * ldb + j];
      FinishOne(sum, c + i * ldc + j, finish.bias ? finish.bias + j : nullptr, finish);
    }
}

HWY_INLINE void SmallPlain(int64_t m, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                           int64_t ldc, int64_t begin, int64_t end, const Finish& finish) {
  for (; m > 0; m -= 4, a += 4 * lda, c += 4 * ldc) {
    switch (m) {
      case 1:
        WideColumns<1>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      case 2:
        WideColumns<2>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      case 3:
        WideColumns<3>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
      default:
        WideColumns<4>(depth, a, lda, b, ldb, c, ldc, begin, end, finish);
        break;
    }
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

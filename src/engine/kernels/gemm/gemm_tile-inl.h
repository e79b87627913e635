// The register tile of matrix products: a few rows of C, two vectors wide, kept in registers while k runs.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_TILE_INL_H_
#undef LINNET_KERNELS_GEMM_TILE_INL_H_
#else
#define LINNET_KERNELS_GEMM_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include "engine/kernels/gemm/gemm_ahead.h"
#include "engine/kernels/gemm/gemm_blocking.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int kLanes = HWY_LANES(float);
constexpr int kWidth = 2 * kLanes;  // columns of a tile and of a packed panel of B
// The oldest processors, and those without vectors, have less of everything, for a short program.
constexpr bool kOldest = HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4);
// Rows of a tile. With two vectors of B they take 30 of AVX-512's 32 registers, or 14 of 16.
constexpr int kRows = kLanes >= 16 ? 14 : kOldest ? 4 : 6;
// A packed A: by rows, kRowStride apart, or (a transposed one) by columns, kColumnStride apart, that are whole vectors.
constexpr int kRowStride = gemm_blocking::kRowStride;
constexpr int kColumnStride = (kRows + kLanes - 1) / kLanes * kLanes;

// Of `rows`, those whose value the multiply-add reads from memory itself, once for each vector of B: fewer
// instructions, more loads, of which there must not be more than multiply-adds. A core that two threads share decodes
// too few instructions for a load apart from every row.
constexpr int embedded(int rows) { return kLanes >= 16 ? rows * 4 / 7 : 0; }
constexpr int64_t kPanelAhead = kLanes >= 16 ? 16 * kWidth : 0;  // of the panel of B, from L2 to L1

// What happens to a finished tile: C = relu(tile [+ C or residual] [+ bias]).
struct Finish {
  bool accumulate = false;
  const float* residual = nullptr;  // of the tile's first element; rows are as far apart as C's
  const float* bias = nullptr;      // of the tile's first column
  bool relu = false;
  Ahead ahead = {};  // what the tile fetches on the side
};

// What a product multiplies. The tile knows packed elements of 32 bits: here a float, in bf16 two neighbors along k.
// Depths of packed operands count packed elements.
struct F32 {
  static constexpr int kPair = 1;  // values of k in a packed element
  static HWY_INLINE V MulAdd(V x, V y, V sum) { return hn::MulAdd(x, y, sum); }
};

HWY_INLINE V Relu(V x) { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x); }  // a NaN is not < 0: it stays

// r[i, :] += a[i * kRow] * b[:] for M rows: what a tile does at every step along k. kAhead: floats from b to what is
// fetched.
template <class P, int M, int kRow, int64_t kAhead = 0, int kVectors>
HWY_INLINE void Step(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, V (&r)[M][kVectors]) {
  // The same address, which the compiler does not know: it would load a value once and keep it in a register.
  const float* same = a;
  if (embedded(M) > 0) asm("" : "+r"(same));
  V y[kVectors];
#pragma GCC unroll 2
  for (int h = 0; h < kVectors; ++h) {
    y[h] = hn::LoadU(d, b + h * kLanes);
    if (kAhead > 0) hwy::Prefetch(b + kAhead + h * kLanes);
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    const V x = hn::Set(d, a[i * kRow]);
    r[i][0] = P::MulAdd(x, y[0], r[i][0]);
    if (kVectors == 1) continue;
    const V again = i < M - embedded(M) ? x : hn::Set(d, same[i * kRow]);
    r[i][kVectors - 1] = P::MulAdd(again, y[kVectors - 1], r[i][kVectors - 1]);
  }
}

// Sums of zero, and fetches the results that they become.
template <int M, int kVectors>
HWY_INLINE void BeginSums(const float* c, int64_t ldc, V (&r)[M][kVectors]) {
#pragma GCC unroll 14
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) r[i][h] = hn::Zero(d);
    hwy::Prefetch(c + i * ldc);
    hwy::Prefetch(c + i * ldc + kVectors * kLanes - 1);
  }
}

// Stores relu(r [+ added] [+ bias]); rows of `added`, which may be c, are as far apart as those of c.
template <int M, int kVectors>
HWY_INLINE void StoreSums(V (&r)[M][kVectors], const float* added, const float* bias, bool relu, float* c,
                          int64_t ldc) {
#pragma GCC unroll 2
  for (int h = 0; h < kVectors; ++h) {
    float* column = c + h * kLanes;
    if (added) {
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) r[i][h] = hn::Add(r[i][h], hn::LoadU(d, added + h * kLanes + i * ldc));
    }
    if (bias) {
      const V summand = hn::LoadU(d, bias + h * kLanes);
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) r[i][h] = hn::Add(r[i][h], summand);
    }
    if (relu) {
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) r[i][h] = Relu(r[i][h]);
    }
#pragma GCC unroll 14
    for (int i = 0; i < M; ++i) hn::StoreU(r[i][h], d, column + i * ldc);
  }
}

// c[M, kWidth] <- a[M, depth] b[depth, kWidth] with the panel b, which is packed and aligned. Element (i, k) of a is
// a[i * kRow + k * kColumn].
template <class P, int M, int kRow, int kColumn>
HWY_NOINLINE void Tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* c, int64_t ldc,
                       const Finish& finish) {
  V r[M][2];
  BeginSums(c, ldc, r);
  constexpr int kL2 = 2;
  const float* ahead = finish.ahead.next;
  while (depth > 0) {
    for (int64_t i = 0; i < finish.ahead.lines; ++i) __builtin_prefetch(ahead + i * finish.ahead.stride, 0, kL2);
    ahead += finish.ahead.advance;
    const int64_t steps = depth < Ahead::kStep ? depth : Ahead::kStep;
    const auto step = [&]() HWY_ATTR {
      Step<P, M, kRow, kPanelAhead>(a, b, r);
      a += kColumn, b += kWidth;
    };
    int64_t k = 0;
    if (M + 3 >= kRows)  // two in a turn, where a product spends its time
      for (; k + 2 <= steps; k += 2) step(), step();
    for (; k < steps; ++k) step();
    depth -= steps;
  }
  StoreSums(r, finish.accumulate ? c : finish.residual, finish.bias, finish.relu, c, ldc);
}

using TileFunction = void (*)(int64_t, const float*, const float*, float*, int64_t, const Finish&);

template <class P, int kRow, int kColumn, int... I>
constexpr std::array<TileFunction, kRows + 1> strided_tiles(std::integer_sequence<int, I...>) {
  return {nullptr, Tile<P, I + 1, kRow, kColumn>...};
}
// Tables indexed by the number of rows, 1 to kRows, for A with constant strides: the compiler needs one address.
template <class P, int kRow, int kColumn>
constexpr auto kStridedTiles = strided_tiles<P, kRow, kColumn>(std::make_integer_sequence<int, kRows>());

// Finishes a tile of only `columns` < kWidth columns of C from its sums `edge` [rows, kWidth]. Nothing outside of those
// columns is read or written.
inline HWY_NOINLINE void FinishEdge(const float* edge, int rows, int64_t columns, float* c, int64_t ldc,
                                    const Finish& finish) {
  const float* added = finish.accumulate ? c : finish.residual;
  int64_t done = 0;  // columns
  // Instruction sets with masks alone: elsewhere a masked load wants whole, aligned vectors.
  for (; kLanes >= 8 && done < columns; done += kLanes) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(columns - done));
    const V bias = finish.bias ? hn::MaskedLoad(mask, d, finish.bias + done) : hn::Zero(d);
    for (int i = 0; i < rows; ++i) {
      V x = hn::Load(d, edge + i * kWidth + done);
      if (added) x = hn::Add(x, hn::MaskedLoad(mask, d, added + i * ldc + done));
      if (finish.bias) x = hn::Add(x, bias);
      if (finish.relu) x = Relu(x);
      hn::BlendedStore(x, mask, d, c + i * ldc + done);
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int64_t j = done; j < columns; ++j) {
      float x = edge[i * kWidth + j];
      if (added) x += added[i * ldc + j];
      if (finish.bias) x += finish.bias[j];
      c[i * ldc + j] = finish.relu && x < 0 ? 0.0f : x;
    }
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

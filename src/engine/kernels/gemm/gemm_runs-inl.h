// The register tile that reads rows of its left operand where they lie, in runs of floats side by side: the rows of a
// product that are not packed, and the pixels that a result of a convolution needs.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_GEMM_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_RUNS_INL_H_
#undef LINNET_KERNELS_GEMM_RUNS_INL_H_
#else
#define LINNET_KERNELS_GEMM_RUNS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <utility>
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

// The order in which a tile reads a row of the product: runs of floats side by side, of a convolution several to a row
// of taps.
struct Runs {
  int64_t length = 0;    // floats
  int64_t per_row = 1;   // runs in a row of taps
  int64_t next_run = 0;  // from the end of a run to the next one of the row
  int64_t next_row = 0;  // from the end of a row's last run to the next row

  // Offset of element k, and how far it is into its run and row.
  HWY_INLINE int64_t offset(int64_t k) const {
    const int64_t run = k / length, row = run / per_row;
    return k + (run - row) * next_run + row * next_row;
  }
};

// What becomes of a tile's sums: `added` (as far apart as the results, which it may be) is added, then a bias of the
// tile's columns, then ReLU.
struct RunFinish {
  const float* added = nullptr;
  const float* bias = nullptr;
  bool relu = false;
};

// c[M, kVectors * kLanes] = sum over k in [begin, begin + depth) of a[i * stride + runs(k)] * b[k - begin, :].
// The panel b is packed, kWidth floats a step. Rows of c are ldc apart. The policy P says what is multiplied: floats,
// or pairs of bf16 in the place of floats (gemm_tile-inl.h).
template <class P, int M, int kVectors>
HWY_NOINLINE void RunTile(const Runs& runs, int64_t begin, int64_t depth, const float* HWY_RESTRICT a, int64_t stride,
                          const float* HWY_RESTRICT b, float* c, int64_t ldc, const RunFinish& finish) {
  V r[M][kVectors];
  BeginSums(c, ldc, r);
  // Every third row has a pointer: an address can hold 0, 1 or 2 times the stride.
  constexpr int kPointers = (M + 2) / 3;
  const float* rows[kPointers];
  int64_t left = runs.length, run = 0;
  if (begin > 0) {  // a division takes as long as a short sum
    a += runs.offset(begin);
    left -= begin % runs.length;
    run = begin / runs.length % runs.per_row;
  }
#pragma GCC unroll 5
  for (int p = 0; p < kPointers; ++p) rows[p] = a + 3 * p * stride;
  for (;;) {
    const int64_t steps = std::min(left, depth);
    for (int64_t k = 0; k < steps; ++k, b += kWidth) {
      V y[kVectors];
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) y[h] = hn::Load(d, b + h * kLanes);
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) {
        const float* x = rows[i / 3] + i % 3 * stride;
        r[i][0] = P::MulAdd(hn::Set(d, *x), y[0], r[i][0]);
        if (kVectors == 1) continue;
        if (i >= M - embedded(M)) asm volatile("" : : : "memory");  // loads the value again: see embedded()
        r[i][kVectors - 1] = P::MulAdd(hn::Set(d, *x), y[kVectors - 1], r[i][kVectors - 1]);
      }
#pragma GCC unroll 5
      for (int p = 0; p < kPointers; ++p) ++rows[p];
    }
    depth -= steps;
    if (depth == 0) break;
    const bool last = ++run == runs.per_row;
    const int64_t jump = last ? runs.next_row : runs.next_run;
    if (last) run = 0;
#pragma GCC unroll 5
    for (int p = 0; p < kPointers; ++p) rows[p] += jump;
    left = runs.length;
  }
  StoreSums(r, finish.added, finish.bias, finish.relu, c, ldc);
}

using RunTileFunction = void (*)(const Runs&, int64_t, int64_t, const float*, int64_t, const float*, float*, int64_t,
                                 const RunFinish&);
template <class P, int kVectors, int... I>
constexpr std::array<RunTileFunction, kRows + 1> run_tiles(std::integer_sequence<int, I...>) {
  return {nullptr, RunTile<P, I + 1, kVectors>...};
}
// Tables indexed by the number of rows, 1 to kRows.
template <class P, int kVectors>
constexpr auto kRunTiles = run_tiles<P, kVectors>(std::make_integer_sequence<int, kRows>());

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

// The register tile of attention's products, which does with its sums what comes next while they are in registers, and
// how weights (probabilities and their gradients) are kept.
#include <algorithm>
#include <array>
#include <cstdint>
#include "engine/kernels/attention/attention_blocking.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {
using attention_blocking::kKeyBlock;
using attention_blocking::kQueryBlock;
using attention_blocking::kScoreStride;
using attention_blocking::Pieces;
using tile::D;
using tile::d;
using tile::kLanes;
using tile::kRows;
using tile::kWidth;
using tile::V;

template <class P> constexpr int64_t kSliceDepth = attention_blocking::kSlice / P::kPair;

// Where a tile's sums go, and their initial values: `row` for each of its rows; else `out` if `accumulate`; else zeros.
struct Sums {
  float* out;
  int64_t stride;
  bool accumulate = false;
  const float* row = nullptr;
};

// out[M, columns] = a[M, depth] b[depth, columns] with columns = kVectors * kLanes, as in gemm/gemm_tile-inl.h. Depths
// count packed elements of the policy P of gemm_tile-inl.h. `skip` floats of a separate slices of its columns
// (attention_blocking::kSlice); 0 if a is in one piece. Masks, exponentials and dropout are loops over the stored
// scores in L1: in registers they would need a tile for each kind of mask, and minutes to compile.
template <class P, int M, int kRow, int kColumn, int kVectors> HWY_NOINLINE void Tile(
    int64_t depth, const float* HWY_RESTRICT a, int64_t skip, const float* HWY_RESTRICT b, const Sums& sums) {
  V r[M][kVectors];
  if (sums.row) {
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
      const V x = hn::Load(d, sums.row + h * kLanes);
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) r[i][h] = x;
    }
  } else if (sums.accumulate) {
#pragma GCC unroll 14
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) r[i][h] = hn::LoadU(d, sums.out + i * sums.stride + h * kLanes);
  } else {
#pragma GCC unroll 14
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) r[i][h] = hn::Zero(d);
  }
  for (; depth > 0; depth -= kSliceDepth<P>, a += skip) {
    const int64_t steps = std::min(depth, kSliceDepth<P>);
    for (int64_t k = 0; k < steps; ++k, a += kColumn, b += kWidth) tile::Step<P, M, kRow>(a, b, r);
  }
#pragma GCC unroll 14
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) hn::StoreU(r[i][h], d, sums.out + i * sums.stride + h * kLanes);
}

// Tiles have an even number of rows, 2 to kRows, as two keys make a packed element in bf16. Indexed by half of it.
using TileFunction = void (*)(int64_t, const float*, int64_t, const float*, const Sums&);
template <class P, int kRow, int kColumn, int kVectors, int... I>
constexpr std::array<TileFunction, kRows / 2 + 1> tile_table(std::integer_sequence<int, I...>) {
  return {nullptr, Tile<P, 2 * I + 2, kRow, kColumn, kVectors>...};
}
template <class P, int kRow, int kColumn, int kVectors>
constexpr auto kTiles = tile_table<P, kRow, kColumn, kVectors>(std::make_integer_sequence<int, kRows / 2>());

// The register tile for a panel's last columns: one vector wide if that is enough.
template <class P, int kRow, int kColumn> HWY_INLINE TileFunction TileFor(int64_t half_rows, int64_t columns) {
  return columns > kLanes ? kTiles<P, kRow, kColumn, 2>[half_rows] : kTiles<P, kRow, kColumn, 1>[half_rows];
}

// Rows divided evenly into tiles of even height: the last tile may have one row too many.
struct Tiles {
  explicit Tiles(int64_t count)
      : tiles(ceil_div(count, kRows)), small(ceil_div(count, 2) / std::max<int64_t>(tiles, 1)),
        larger(ceil_div(count, 2) % std::max<int64_t>(tiles, 1)) {}
  int64_t begin(int64_t t) const { return 2 * (t * small + std::min(t, larger)); }
  int64_t half_rows(int64_t t) const { return small + (t < larger); }

  int64_t tiles;
  int64_t small;   // pairs of rows of a tile
  int64_t larger;  // so many tiles at the start have one more
};

// fp32: how the weights of keys j (even) and j + 1, for one or two vectors of queries from i, are stored for products
// along the keys (element j, i of a transposed left operand) and along the queries (rows of one).
struct F32Weights : tile::F32Pack {
  static constexpr int kExpDegree = 5;
  static constexpr bool kOneForm = true;                       // both forms are the same
  static constexpr int kKeyRow = attention_blocking::kKeyRow;  // between packed rows of keys and values
  static constexpr int kAlongKeys = kScoreStride, kAlongQueries = kScoreStride;  // strides

  template <int kVectors>
  static HWY_INLINE void StoreAlongKeys(const V (&x)[2][kVectors], int64_t j, int64_t i, float* out) {
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row)
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) hn::Store(x[row][h], d, out + (j + row) * kAlongKeys + i + h * kLanes);
  }
  template <int kVectors>
  static HWY_INLINE void StoreAlongQueries(const V (&x)[2][kVectors], int64_t j, int64_t i, float* out) {
    StoreAlongKeys(x, j, i, out);
  }
  static float along_keys(const float* weights, int64_t j, int64_t i) { return weights[j * kAlongKeys + i]; }
  static float along_queries(const float* weights, int64_t j, int64_t i) { return weights[j * kAlongQueries + i]; }
  static float unpack(float element, int64_t) { return element; }
  template <class T> static HWY_INLINE void PackScaled(const T* source, int64_t width, float factor, float* out) {
    ForRow(width, [&](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(SetAll(factor), at.load(source)), out); });
  }
};
}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

// The register tile of matrix products: a few rows of C, two vectors wide, kept in registers while k runs.
#if defined(LINNET_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_TILE_INL_H_
#undef LINNET_KERNELS_GEMM_TILE_INL_H_
#else
#define LINNET_KERNELS_GEMM_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int kLanes = HWY_LANES(float);
constexpr int kWidth = 2 * kLanes;  // columns of a tile and of a packed panel of B
// The oldest processors, and those without vectors, get smaller tiles, for a short program.
constexpr bool kOldest = HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4);
// Rows of a tile. With two vectors of B they take 30 of AVX-512's 32 registers, or 14 of 16.
constexpr int kRows = kLanes >= 16 ? 14 : kOldest ? 4 : 6;
// A packed A: by rows, kRowStride apart, or, transposed, by columns of whole vectors, kColumnStride apart.
constexpr int kRowStride = gemm_blocking::kRowStride;
constexpr int kColumnStride = round_up(kRows, kLanes);

// Of `rows`, those that the multiply-add reads from memory itself, once for each vector of B: fewer instructions but
// more loads, at most one per multiply-add. A core shared by two threads decodes too few instructions otherwise.
constexpr int embedded(int rows) { return kLanes >= 16 ? rows * 4 / 7 : 0; }
constexpr int64_t kPanelAhead = kLanes >= 16 ? 16 * kWidth : 0;  // of the panel of B, from L2 to L1

// Applied to a finished tile: C = relu(tile [+ C or residual] [+ bias]).
struct Finish {
  bool accumulate = false;
  const float* residual = nullptr;  // of the tile's first element; rows are as far apart as C's
  const float* bias = nullptr;      // of the tile's first column
  bool relu = false;
  Ahead ahead = {};  // what the tile fetches on the side
};

// The type of products. A packed element has 32 bits: a float here, in bf16 two neighbors along k. Depths of packed
// operands count packed elements.
struct F32 {
  static constexpr int kPair = 1;  // values of k in a packed element
  static HWY_INLINE V MulAdd(V x, V y, V sum) { return hn::MulAdd(x, y, sum); }
};

// r[i, :] += a[i * kRow] * b[:] for M rows: a step along k. kAhead: floats from b to what is prefetched.
template <class P, int M, int kRow, int64_t kAhead = 0, int kVectors>
HWY_INLINE void Step(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, V (&r)[M][kVectors]) {
  // Hides that the address is the same: the compiler would otherwise load the value once into a register.
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

// Zeroes the sums and prefetches their results.
template <int M, int kVectors> HWY_INLINE void BeginSums(const float* c, int64_t ldc, V (&r)[M][kVectors]) {
#pragma GCC unroll 14
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) r[i][h] = hn::Zero(d);
    hwy::Prefetch(c + i * ldc);
    hwy::Prefetch(c + i * ldc + kVectors * kLanes - 1);
  }
}

// Stores relu(r [+ added] [+ bias]); `added`, which may be c, has c's row stride.
template <int M, int kVectors> HWY_INLINE void StoreSums(
    V (&r)[M][kVectors], const float* added, const float* bias, bool relu, float* c, int64_t ldc) {
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

// c[M, kWidth] <- a[M, depth] b[depth, kWidth] with the packed, aligned panel b. Element (i, k) of a is a[i * kRow + k
// * kColumn].
template <class P, int M, int kRow, int kColumn> HWY_NOINLINE void Tile(int64_t depth, const float* HWY_RESTRICT a,
    const float* HWY_RESTRICT b, float* c, int64_t ldc, const Finish& finish) {
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
// Indexed by the number of rows, 1 to kRows, for A with constant strides: the compiler needs one address.
template <class P, int kRow, int kColumn>
constexpr auto kStridedTiles = strided_tiles<P, kRow, kColumn>(std::make_integer_sequence<int, kRows>());

// Finishes a tile of `columns` < kWidth columns of C from its sums `edge` [rows, kWidth]. Touches no other columns.
inline HWY_NOINLINE void FinishEdge(
    const float* edge, int rows, int64_t columns, float* c, int64_t ldc, const Finish& finish) {
  const float* added = finish.accumulate ? c : finish.residual;
  int64_t done = 0;  // columns
  // Only with masks: elsewhere a masked load needs whole, aligned vectors.
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

// The register tile that reads rows of its left operand where they lie, in runs of floats side by side: the rows of a
// product that are not packed, and the pixels that a result of a convolution needs.
//
// The order in which a tile reads a row of the product: runs of contiguous floats; a convolution has several for a row
// of taps.
struct Runs {
  int64_t length = 0;    // floats
  int64_t per_row = 1;   // runs in a row of taps
  int64_t next_run = 0;  // from the end of a run to the next one of the row
  int64_t next_row = 0;  // from the end of a row's last run to the next row

  HWY_INLINE int64_t offset(int64_t k) const {  // of element k
    const int64_t run = k / length, row = run / per_row;
    return k + (run - row) * next_run + row * next_row;
  }
};

// Applied to a tile's sums: adds `added` (with the results' stride; may be the results), a bias of the tile's columns,
// then ReLU.
struct RunFinish {
  const float* added = nullptr;
  const float* bias = nullptr;
  bool relu = false;
};

// c[M, kVectors * kLanes] = sum over k in [begin, begin + depth) of a[i * stride + runs(k)] * b[k - begin, :]. The
// panel b is packed, kWidth floats a step. Rows of c are ldc apart. The policy P: products of floats, or of bf16 pairs
// in place of floats (gemm_tile-inl.h).
template <class P, int M, int kVectors> HWY_NOINLINE void RunTile(const Runs& runs, int64_t begin, int64_t depth,
    const float* HWY_RESTRICT a, int64_t stride, const float* HWY_RESTRICT b, float* c, int64_t ldc,
    const RunFinish& finish) {
  V r[M][kVectors];
  BeginSums(c, ldc, r);
  // Every third row has a pointer: an address can add 0, 1 or 2 times the stride.
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

using RunTileFunction = void (*)(
    const Runs&, int64_t, int64_t, const float*, int64_t, const float*, float*, int64_t, const RunFinish&);
template <class P, int kVectors, int... I>
constexpr std::array<RunTileFunction, kRows + 1> run_tiles(std::integer_sequence<int, I...>) {
  return {nullptr, RunTile<P, I + 1, kVectors>...};
}
// Indexed by the number of rows, 1 to kRows.
template <class P, int kVectors>
constexpr auto kRunTiles = run_tiles<P, kVectors>(std::make_integer_sequence<int, kRows>());

constexpr int kPeakChains = 2 * kRows;  // independent sums, as many as the register tile of a product has

// The inner loop of a product without its loads. Returns its result to keep it from being optimized away.
template <class P> HWY_NOINLINE float MultiplyAdds(int64_t rounds) {
  const hn::RebindToUnsigned<D> bits;
  const V x = hn::BitCast(d, hn::Set(bits, 0x3f803f80u));  // a float or two bf16: 1
  const V y = hn::BitCast(d, hn::Set(bits, 0x30803080u));  // 1e-9
  V r[kPeakChains];
#pragma GCC unroll 28
  for (int i = 0; i < kPeakChains; ++i) r[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 28
    for (int i = 0; i < kPeakChains; ++i) r[i] = P::MulAdd(x, y, r[i]);
  }
  V sum = r[0];
#pragma GCC unroll 28
  for (int i = 1; i < kPeakChains; ++i) sum = hn::Add(sum, r[i]);
  return hn::GetLane(sum);
}

// A multiplication and an addition are two.
template <class P> constexpr double kRoundOperations = 2.0 * P::kPair* kPeakChains* kLanes;

// Packing: operands copied into the order in which the tile reads them, and rounded if it multiplies in less than fp32.
//  A policy P (F32 here, Bf16 in gemm_bf16-inl.h) says how P::kPair values, neighbors along k, make a packed element.
// `depth` counts values of k; a packed operand is ceil(depth / kPair) elements deep, an odd end filled up by zero. T is
// the type of the values in memory: float, or for the policy Bf16 also Bfloat16, packed as it is.

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
  if (width > kLanes) PackHalfTransposed<P>(source + kLanes * stride, stride, depth, width - kLanes, out + kLanes);
  else
    for (int64_t k = 0; k < depth; k += P::kPair, out += kWidth) hn::Store(hn::Zero(d), d, out + kLanes);
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
    if (readable - i >= kLanes) hn::Store(P::LoadAcross(source + i, stride, rows, WholeLanes{0}), d, out + i);
    else hn::Store(P::LoadAcross(source + i, stride, rows, PartLanes{0, readable - i}), d, out + i);
  }
}
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif

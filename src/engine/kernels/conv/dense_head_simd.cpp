// All three keep a tile of sums in registers: up to 5 outputs or rows by kWide vectors; 20 sums for 9 loads.
#include <algorithm>
#include "base/numbers.h"
#include "engine/kernels/conv/dense_head.h"
#include "engine/kernels/parallel.h"

#define HWY_TARGET_INCLUDE "engine/kernels/conv/dense_head_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_DENSE_HEAD_SIZES
#define LINNET_KERNELS_DENSE_HEAD_SIZES
namespace linnet {
namespace {
constexpr int64_t kTall = 5;           // outputs (or rows) of a tile
constexpr int64_t kTaskRows = 16;      // of x or dx: some 4 microseconds of a core for k = 3136
constexpr int64_t kDepth = 512;        // of inputs: that much of w stays in L1 while rows of x pass by
constexpr int64_t kTaskColumns = 256;  // of dw
constexpr int64_t kLineFloats = 16;    // of a cache line
constexpr int64_t kFetchAhead = 128;   // floats of a row of x that are fetched before they are multiplied
constexpr int64_t kSumRows = 32;       // rows of x that are added up before the sums go back to dw

struct ForwardCall {
  DenseHeadShape shape;
  const float *x, *w, *bias;
  bool relu;
  float* y;
};

struct GradientCall {
  DenseHeadShape shape;
  const float *dy, *other;  // other: x, or w
  bool accumulate;
  float* out;
};
}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
constexpr int64_t kWide = kFloatLanes >= 16 ? 4 : 2;
constexpr int64_t kPanel = kWide * kFloatLanes;

// Calls body.operator()<T>(first) for tiles of T <= kTall that cover [0, count), as evenly as possible.
template <class Body> HWY_INLINE void ForTiles(int64_t count, const Body& body) {
  for (int64_t tiles = ceil_div(count, kTall), first = 0; tiles > 0; --tiles) {
    const int64_t size = ceil_div(count - first, tiles);
    WithConstant<kTall>(size, [&]<int T>() LINNET_LAMBDA { body.template operator()<T>(first); });
    first += size;
  }
}

HWY_INLINE Floats SumLanesOfFour(Floats a, Floats b, Floats c, Floats d) {  // in the first four lanes
  const FloatTag tag;
  const hn::Repartition<uint64_t, FloatTag> pairs;
  const auto low = [&](Floats x, Floats y) LINNET_LAMBDA {
    return hn::BitCast(tag, hn::InterleaveLower(pairs, hn::BitCast(pairs, x), hn::BitCast(pairs, y)));
  };
  const auto high = [&](Floats x, Floats y) LINNET_LAMBDA {
    return hn::BitCast(tag, hn::InterleaveUpper(pairs, hn::BitCast(pairs, x), hn::BitCast(pairs, y)));
  };
  const Floats ab = hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));  // a b a b in each block
  const Floats cd = hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d));
  Floats sums = hn::Add(low(ab, cd), high(ab, cd));  // a b c d in each block
#if HWY_MAX_BYTES >= 64
  sums = hn::Add(sums, hn::SwapAdjacentBlocks(sums));
#endif
#if HWY_MAX_BYTES >= 32
  sums = hn::Add(sums, hn::ConcatLowerUpper(tag, sums, sums));  // halves swapped
#endif
  return sums;
}

// sums [T][kWide] (+)= products along `depth` of T rows of w with kWide rows of x (`rows` of them, the others are
// zero). Between blocks of depth the sums of lanes are vectors: [T][kWide][lanes].
template <int T> HWY_INLINE void DotTile(int64_t depth, const float* HWY_RESTRICT w, const float* HWY_RESTRICT x,
    int64_t k, int64_t rows, bool first, float* HWY_RESTRICT sums) {
  Floats r[T][kWide];
#pragma GCC unroll 5
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int q = 0; q < kWide; ++q) r[t][q] = first ? SetAll(0) : LoadFloats(sums + (t * kWide + q) * kFloatLanes);
  const float* row[kWide];
#pragma GCC unroll 4
  for (int q = 0; q < kWide; ++q) row[q] = x + std::min<int64_t>(q, rows - 1) * k;  // a row may be summed up twice
  const auto step = [&](const auto& at) LINNET_LAMBDA {
    Floats v[kWide];
#pragma GCC unroll 4
    for (int q = 0; q < kWide; ++q) v[q] = at.load(row[q]);
#pragma GCC unroll 5
    for (int t = 0; t < T; ++t) {
      const Floats weight = at.load(w + t * k);
#pragma GCC unroll 4
      for (int q = 0; q < kWide; ++q) r[t][q] = hn::MulAdd(weight, v[q], r[t][q]);
    }
  };
  int64_t i = 0;
  for (; i + kFloatLanes <= depth; i += kFloatLanes) {
#pragma GCC unroll 4
    for (int q = 0; q < kWide; ++q) __builtin_prefetch(row[q] + i + kFetchAhead);
    step(WholeLanes{i});
  }
  if (i < depth) step(PartLanes{i, depth - i});
#pragma GCC unroll 5
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int q = 0; q < kWide; ++q) StoreFloats(r[t][q], sums + (t * kWide + q) * kFloatLanes);
}

void ForwardRows(const ForwardCall& call, int64_t begin, int64_t end) {
  const int64_t n = call.shape.n, k = call.shape.k;
  // [row group][output][kWide][lanes]
  HWY_ALIGN float sums[kTaskRows * DenseHeadShape::kMaxOutputs * kFloatLanes];
  const int64_t group_floats = n * kPanel;
  for (int64_t from = 0; from == 0 || from < k; from += kDepth) {  // once for k = 0, too
    float* group = sums;
    for (int64_t row = begin; row < end; row += kWide, group += group_floats)
      ForTiles(n, [&]<int T>(int64_t output) LINNET_LAMBDA {
        DotTile<T>(std::min(kDepth, k - from), call.w + output * k + from, call.x + row * k + from, k, end - row,
            from == 0, group + output * kPanel);
      });
  }
  const float* group = sums;
  for (int64_t row = begin; row < end; row += kWide, group += group_floats)
    for (int64_t output = 0; output < n; ++output) {
      const float* r = group + output * kPanel;
      const auto load = [&](int64_t q) LINNET_LAMBDA { return LoadFloats(r + std::min(q, kWide - 1) * kFloatLanes); };
      HWY_ALIGN float four[kFloatLanes];
      hn::Store(SumLanesOfFour(load(0), load(1), load(2), load(3)), FloatTag(), four);
      for (int64_t q = 0; q < std::min(kWide, end - row); ++q) {
        const float sum = four[q] + (call.bias ? call.bias[output] : 0.0f);
        call.y[(row + q) * n + output] = call.relu && sum < 0 ? 0.0f : sum;
      }
    }
}

// to [T, panel], rows `stride` apart, (+)= sum over `count` of a (element (t, i) at a + t * a_row + i * a_step) times
// row i of b (b_stride apart). The last panel may be partial: `width` floats.
template <int T> HWY_INLINE void OuterTile(int64_t count, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_step,
    const float* HWY_RESTRICT b, int64_t b_stride, int64_t width, bool add, float* HWY_RESTRICT to, int64_t stride) {
  const auto run = [&](const auto& load, const auto& store) LINNET_LAMBDA {
    Floats r[T][kWide];
#pragma GCC unroll 5
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
      for (int q = 0; q < kWide; ++q) r[t][q] = add ? load(to + t * stride, q) : SetAll(0);
    for (int64_t i = 0; i < count; ++i, b += b_stride) {
      Floats v[kWide];
#pragma GCC unroll 4
      for (int q = 0; q < kWide; ++q) v[q] = load(b, q);
        // Prefetches the next panel: hardware does not, as rows are many and far apart.
#pragma GCC unroll 4
      for (int64_t line = 0; line < kPanel; line += kLineFloats) __builtin_prefetch(b + kPanel + line);
#pragma GCC unroll 5
      for (int t = 0; t < T; ++t) {
        const Floats factor = SetAll(a[t * a_row + i * a_step]);
#pragma GCC unroll 4
        for (int q = 0; q < kWide; ++q) r[t][q] = hn::MulAdd(factor, v[q], r[t][q]);
      }
    }
#pragma GCC unroll 5
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
      for (int q = 0; q < kWide; ++q) store(r[t][q], to + t * stride, q);
  };
  if (width >= kPanel) {
    run([](const float* p, int q) LINNET_LAMBDA { return LoadFloats(p + q * kFloatLanes); },
        [](Floats x, float* p, int q) LINNET_LAMBDA { StoreFloats(x, p + q * kFloatLanes); });
  } else {
    const auto part = [width](int q)
                          LINNET_LAMBDA { return std::clamp<int64_t>(width - q * kFloatLanes, 0, kFloatLanes); };
    run(
        [&](const float* p, int q) LINNET_LAMBDA {
          return part(q) == kFloatLanes ? LoadFloats(p + q * kFloatLanes)
                 : part(q) == 0         ? SetAll(0)
                                        : LoadPart(p + q * kFloatLanes, part(q));
        },
        [&](Floats x, float* p, int q) LINNET_LAMBDA {
          if (part(q) == kFloatLanes) StoreFloats(x, p + q * kFloatLanes);
          else if (part(q) > 0) StorePart(x, p + q * kFloatLanes, part(q));
        });
  }
}

// Columns [begin, end) of dw.
void WeightGradientColumns(const GradientCall& call, int64_t begin, int64_t end) {
  const int64_t m = call.shape.m, n = call.shape.n, k = call.shape.k;
  const float* dy = call.dy;
  for (int64_t row = 0; row < m; row += kSumRows)
    for (int64_t column = begin; column < end; column += kPanel)
      ForTiles(n, [&]<int T>(int64_t output) LINNET_LAMBDA {
        OuterTile<T>(std::min(kSumRows, m - row), dy + row * n + output, 1, n, call.other + row * k + column, k,
            end - column, call.accumulate || row > 0, call.out + output * k + column, k);
      });
}

void InputGradientRows(const GradientCall& call, int64_t begin, int64_t end) {
  const int64_t n = call.shape.n, k = call.shape.k;
  for (int64_t column = 0; column < k; column += kPanel)
    ForTiles(end - begin, [&]<int T>(int64_t first) LINNET_LAMBDA {
      const int64_t row = begin + first;
      OuterTile<T>(n, call.dy + row * n, n, 1, call.other + column, k, k - column, call.accumulate,
          call.out + row * k + column, k);
    });
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(ForwardRows);
HWY_EXPORT(WeightGradientColumns);
HWY_EXPORT(InputGradientRows);

void dense_head_forward(const DenseHeadShape& shape, const float* x, const float* w, const float* bias, bool relu,
    float* y, ThreadPool& pool) {
  const ForwardCall call{shape, x, w, bias, relu, y};
  for_steps(pool, shape.m, kTaskRows, [&](auto... range) { HWY_DYNAMIC_DISPATCH(ForwardRows)(call, range...); });
}

void dense_head_weight_gradient(
    const DenseHeadShape& shape, const float* dy, const float* x, bool accumulate, float* dw, ThreadPool& pool) {
  if (shape.m == 0 && !accumulate) std::fill_n(dw, shape.n * shape.k, 0.0f);
  const GradientCall call{shape, dy, x, accumulate, dw};
  for_steps(pool, shape.k, kTaskColumns, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(WeightGradientColumns)(call, begin, end);
  });
}

void dense_head_input_gradient(
    const DenseHeadShape& shape, const float* dy, const float* w, bool accumulate, float* dx, ThreadPool& pool) {
  const GradientCall call{shape, dy, w, accumulate, dx};
  for_steps(pool, shape.m, kTaskRows, [&](auto... range) { HWY_DYNAMIC_DISPATCH(InputGradientRows)(call, range...); });
}

void dense_head_input_gradient_rows(
    const DenseHeadShape& shape, const float* dy, const float* w, int64_t begin, int64_t end, float* out) {
  const GradientCall call{{end - begin, shape.n, shape.k}, dy + begin * shape.n, w, false, out};
  HWY_DYNAMIC_DISPATCH(InputGradientRows)(call, 0, end - begin);
}
}  // namespace linnet
#endif

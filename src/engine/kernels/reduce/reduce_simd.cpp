#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include "base/numbers.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/reduce/reduce.h"

#define HWY_TARGET_INCLUDE "engine/kernels/reduce/reduce_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/vector_math-inl.h"

#ifndef LINNET_KERNELS_REDUCE_ONCE
#define LINNET_KERNELS_REDUCE_ONCE
namespace linnet {
namespace {
constexpr int64_t kStrip = 1024;   // columns that sum_rows handles at once: 4 KiB of partial sums
constexpr int64_t kRowBlock = 64;  // rows added up before they join the larger sum, which bounds rounding errors
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The best so far, descending. Elements are offered by index, so an equal later one goes behind.
struct TopList {
  int64_t k;
  float* values;
  int32_t* ids;
  int64_t count = 0;

  void offer(float value, int64_t index) {
    if (std::isnan(value)) value = kLowest;
    if (count == k && !(value > values[k - 1])) return;
    int64_t location = count < k ? count++ : k - 1;
    for (; location > 0 && value > values[location - 1]; --location) {
      values[location] = values[location - 1];
      ids[location] = ids[location - 1];
    }
    values[location] = value;
    ids[location] = static_cast<int32_t>(index);
  }
};
}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
void SquaresOfBlocks(int64_t begin, int64_t end, int64_t n, const float* x, double* partial) {
  for (int64_t block = begin; block < end; ++block)
    partial[block] = SumInDouble<true>(std::min(kSumBlock, n - block * kSumBlock), x + block * kSumBlock);
}

void MaximaOfRows(int64_t begin, int64_t end, int64_t width, const float* x, float* out) {
  const auto larger = [](Floats a, Floats b) LINNET_LAMBDA {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
  };
  for (int64_t row = begin; row < end; ++row) {
    const float* r = x + row * width;
    const Floats found = FoldRow(
        width, kLowest, [=](const auto& at) LINNET_LAMBDA { return at.load(r, kLowest); }, larger);
    const bool is_number = hn::AllFalse(FloatTag(), hn::IsNaN(found));
    out[row] = is_number ? hn::GetLane(hn::MaxOfLanes(FloatTag(), found)) : std::numeric_limits<float>::quiet_NaN();
  }
}

// out [count] = the sum of rows of `count` columns, `stride` apart. Four rows at a time, to spare the cache.
template <class T> void SumStrip(int64_t rows, int64_t stride, int64_t count, StoredFloats x, float* out) {
  HWY_ALIGN float block[kStrip];
  std::fill(out, out + count, 0.0f);
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    const int64_t last = std::min(rows, first + kRowBlock);
    std::fill(block, block + count, 0.0f);
    int64_t row = first;
    for (; row + 4 <= last; row += 4) {
      const T* p = x.as<T>() + row * stride;
      ForRow(count, [=, &block](const auto& at) LINNET_LAMBDA {
        const Floats low = hn::Add(at.load(p), at.load(p + stride));
        const Floats high = hn::Add(at.load(p + 2 * stride), at.load(p + 3 * stride));
        at.store(hn::Add(at.load(block), hn::Add(low, high)), block);
      });
    }
    for (; row < last; ++row) {
      const T* p = x.as<T>() + row * stride;
      ForRow(
          count, [=, &block](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(block), at.load(p)), block); });
    }
    ForRow(count, [=, &block](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(out), at.load(block)), out); });
  }
}

auto SumStripOf(bool bf16) { return bf16 ? SumStrip<Bfloat16> : SumStrip<float>; }

void SoftmaxFloats(int64_t begin, int64_t end, int64_t width, const float* x, float* y) {
  x += begin * width;
  y += begin * width;
  for (int64_t row = begin; row < end; ++row, x += width, y += width) {
    const float largest = MaxRow(width, x);
    const Floats offset = SetAll(largest == kLowest ? 0.0f : largest);  // -inf - -inf would be NaN
    const float sum = SumRow(width, [=](const auto& at) LINNET_LAMBDA {
      const Floats e = Exp(hn::Sub(at.load(x, kLowest), offset));
      at.store(e, y);
      return e;
    });
    const Floats scale = SetAll(sum == 0 ? 0.0f : 1.0f / sum);
    ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(y), scale), y); });
  }
}

// Computes the exponentials twice: storing them in y before the division would round them.
void SoftmaxShorts(int64_t begin, int64_t end, int64_t width, const Bfloat16* x, Bfloat16* y) {
  x += begin * width;
  y += begin * width;
  for (int64_t row = begin; row < end; ++row, x += width, y += width) {
    const float largest = MaxRow(width, x), shift = largest == kLowest ? 0.0f : largest;
    const float sum = SumExp(width, x, shift);
    const Floats offset = SetAll(shift), scale = SetAll(sum == 0 ? 0.0f : 1.0f / sum);
    ForRow(width,
        [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(Exp(hn::Sub(at.load(x, kLowest), offset)), scale), y); });
  }
}

void SoftmaxRows(int64_t begin, int64_t end, int64_t width, StoredFloats x, MutableStoredFloats y) {
  if (x.is_bf16) return SoftmaxShorts(begin, end, width, x.bf16(), y.bf16());
  SoftmaxFloats(begin, end, width, x.f32(), y.f32());
}

template <class T>
void GradientRows(int64_t begin, int64_t end, int64_t width, StoredFloats dy, StoredFloats y, MutableStoredFloats dx) {
  for (int64_t first = begin * width; first < end * width; first += width) {
    const T *d = dy.as<T>() + first, *p = y.as<T>() + first;
    T* to = dx.as<T>() + first;
    const Floats dot =
        SetAll(SumRow(width, [=](const auto& at) LINNET_LAMBDA { return hn::Mul(at.load(d), at.load(p)); }));
    ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(p), hn::Sub(at.load(d), dot)), to); });
  }
}

auto GradientRowsOf(bool bf16) { return bf16 ? GradientRows<Bfloat16> : GradientRows<float>; }

void LogSumExpRows(int64_t begin, int64_t end, int64_t width, const float* x, float* y) {
  for (int64_t row = begin; row < end; ++row) {
    const float* r = x + row * width;
    const float largest = MaxRow(width, r);
    const float shift = largest == kLowest ? 0.0f : largest;  // -inf - -inf would be NaN
    y[row] = largest == -kLowest ? largest : shift + std::log(SumExp(width, r, shift));
  }
}

constexpr int64_t kBlock = 4 * kFloatLanes;
static_assert(kFloatLanes <= 16);

// Four vectors, with -inf for NaN, which comparisons would lose.
struct Block {
  Floats v0, v1, v2, v3;
};
HWY_INLINE Floats LoadNumbers(const float* x) {
  const Floats v = LoadFloats(x);
  return hn::IfThenElse(hn::Eq(v, v), v, SetAll(kLowest));
}
HWY_INLINE Block LoadBlock(const float* x) {
  return {
      LoadNumbers(x), LoadNumbers(x + kFloatLanes), LoadNumbers(x + 2 * kFloatLanes), LoadNumbers(x + 3 * kFloatLanes)};
}

// At least k elements of the whole blocks reach this bound: the k-th largest of the maxima of interleaved parts of the
// row. Few others exceed it, so the second pass rarely stops.
float LowerBound(int64_t width, int64_t k, const float* x) {
  if (k > kBlock || width < kBlock) return kLowest;
  Block most{SetAll(kLowest), SetAll(kLowest), SetAll(kLowest), SetAll(kLowest)};
  for (int64_t i = 0; i + kBlock <= width; i += kBlock) {
    const Block b = LoadBlock(x + i);
    most = {hn::Max(most.v0, b.v0), hn::Max(most.v1, b.v1), hn::Max(most.v2, b.v2), hn::Max(most.v3, b.v3)};
  }
  HWY_ALIGN float maxima[kBlock];
  StoreFloats(most.v0, maxima);
  StoreFloats(most.v1, maxima + kFloatLanes);
  StoreFloats(most.v2, maxima + 2 * kFloatLanes);
  StoreFloats(most.v3, maxima + 3 * kFloatLanes);
  std::nth_element(maxima, maxima + k - 1, maxima + kBlock, std::greater<float>());
  return maxima[k - 1];
}

HWY_INLINE void OfferLanes(Floats v, Floats bound, const float* x, int64_t first, TopList& top) {
  uint8_t bytes[8] = {};  // Highway writes at least eight
  hn::StoreMaskBits(FloatTag(), hn::Ge(v, bound), bytes);
  for (uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8; bits != 0; bits &= bits - 1) {
    const int64_t i = first + std::countr_zero(bits);
    top.offer(x[i], i);
  }
}

void TopRow(int64_t width, const float* x, TopList& top) {
  const Floats bound = SetAll(LowerBound(width, top.k, x));
  int64_t i = 0;
  for (; i + kBlock <= width; i += kBlock) {
    const Block b = LoadBlock(x + i);
    const Floats largest = hn::Max(hn::Max(b.v0, b.v1), hn::Max(b.v2, b.v3));
    if (hn::AllFalse(FloatTag(), hn::Ge(largest, bound))) continue;
    OfferLanes(b.v0, bound, x, i, top);
    OfferLanes(b.v1, bound, x, i + kFloatLanes, top);
    OfferLanes(b.v2, bound, x, i + 2 * kFloatLanes, top);
    OfferLanes(b.v3, bound, x, i + 3 * kFloatLanes, top);
  }
  for (; i < width; ++i) top.offer(x[i], i);
}

void TopRows(int64_t begin, int64_t end, int64_t width, int64_t k, const float* x, float* values, int32_t* ids) {
  for (int64_t row = begin; row < end; ++row) {
    TopList top{k, values + row * k, ids + row * k};
    TopRow(width, x + row * width, top);
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(SquaresOfBlocks);
HWY_EXPORT(MaximaOfRows);
HWY_EXPORT(SumStripOf);
HWY_EXPORT(AddRows);
HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(GradientRowsOf);
HWY_EXPORT(LogSumExpRows);
HWY_EXPORT(TopRows);
}  // namespace

size_t sum_workspace(int64_t n) { return bytes_for<double>(ceil_div(n, kSumBlock)); }

void block_squares(int64_t n, const float* x, double* blocks, ThreadPool& pool) {
  for_ranges(pool, ceil_div(n, kSumBlock), kSumBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SquaresOfBlocks)(begin, end, n, x, blocks);
  });
}

double sum_of_squares(int64_t n, const float* x, void* workspace, ThreadPool& pool) {
  auto* partial = static_cast<double*>(workspace);
  block_squares(n, x, partial, pool);
  return std::accumulate(partial, partial + ceil_div(n, kSumBlock), 0.0);
}

void row_maxima(int64_t rows, int64_t width, const float* x, float* out, ThreadPool& pool) {
  for_ranges(pool, rows, width, [&](auto... range) { HWY_DYNAMIC_DISPATCH(MaximaOfRows)(range..., width, x, out); });
}

size_t sum_rows_workspace(int64_t rows, int64_t width) { return bytes_for<float>(row_chunks(rows) * width); }

void sum_rows(int64_t rows, int64_t width, StoredFloats x, float* out, void* workspace, ThreadPool& pool) {
  auto* partial = static_cast<float*>(workspace);  // [chunks, width]
  const int64_t chunks = row_chunks(rows), strips = ceil_div(width, kStrip);
  if (width <= 0) return;
  for_each_index(pool, chunks * strips, rows * width / (chunks * strips), [&](int64_t task) {
    const int64_t chunk = task / strips, column = task % strips * kStrip;
    const int64_t first = rows * chunk / chunks, last = rows * (chunk + 1) / chunks;
    HWY_DYNAMIC_DISPATCH(SumStripOf)
    (x.is_bf16)(last - first, width, std::min(kStrip, width - column), x + first * width + column,
        partial + chunk * width + column);
  });
  add_rows(chunks, width, width, partial, false, out, kStrip, pool);
}

void add_rows(int64_t rows, int64_t stride, int64_t width, const float* x, bool accumulate, float* out, int64_t columns,
    ThreadPool& pool) {
  for_ranges(pool, ceil_div(width, columns), rows * columns, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * columns, count = std::min(width, end * columns) - first;
    HWY_DYNAMIC_DISPATCH(AddRows)(rows, stride, count, x + first, accumulate, out + first);
  });
}

void softmax_forward(int64_t rows, int64_t width, StoredFloats x, MutableStoredFloats y, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * width, [&](auto... range) { HWY_DYNAMIC_DISPATCH(SoftmaxRows)(range..., width, x, y); });
}

void softmax_backward(
    int64_t rows, int64_t width, StoredFloats dy, StoredFloats y, MutableStoredFloats dx, ThreadPool& pool) {
  for_ranges(pool, rows, width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GradientRowsOf)(dy.is_bf16)(begin, end, width, dy, y, dx);
  });
}

void log_sum_exp_rows(int64_t rows, int64_t width, const float* x, float* y, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * width, [&](auto... range) { HWY_DYNAMIC_DISPATCH(LogSumExpRows)(range..., width, x, y); });
}

void top_k_rows(int64_t rows, int64_t width, int64_t k, const float* x, float* values, int32_t* ids) {
  if (k > 0) HWY_DYNAMIC_DISPATCH(TopRows)(0, rows, width, k, x, values, ids);
}
}  // namespace linnet
#endif

#include <algorithm>
#include "base/numbers.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/reduce/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/reduce/reduce_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_REDUCE_SIZES
#define LINNET_KERNELS_REDUCE_SIZES
namespace linnet {
namespace {

constexpr int64_t kStrip = 1024;   // columns that sum_rows handles at once: 4 KiB of partial sums
constexpr int64_t kRowBlock = 64;  // rows added up before they join the larger sum, which bounds rounding errors

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

// Double holds the square of any float, so a gradient of 1e30 has a norm instead of an overflow.
template <bool kSquares>
double SumBlock(int64_t count, const float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t lanes = HWY_MAX_BYTES / sizeof(double);
  const auto add = [=](auto total, const float* p) LINNET_LAMBDA {
    const auto v = hn::PromoteTo(d, hn::LoadU(half, p));
    return kSquares ? hn::MulAdd(v, v, total) : hn::Add(total, v);
  };
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = add(s0, x + i);
    s1 = add(s1, x + i + lanes);
    s2 = add(s2, x + i + 2 * lanes);
    s3 = add(s3, x + i + 3 * lanes);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < count; ++i) total += kSquares ? static_cast<double>(x[i]) * x[i] : x[i];
  return total;
}

void SumBlocks(bool squares, int64_t begin, int64_t end, int64_t n, const float* x, double* partial) {
  for (int64_t block = begin; block < end; ++block) {
    const float* from = x + block * kSumBlock;
    const int64_t count = std::min(kSumBlock, n - block * kSumBlock);
    partial[block] = squares ? SumBlock<true>(count, from) : SumBlock<false>(count, from);
  }
}

// out [count] = the sum of rows of `count` columns that lie `stride` apart. Four rows at a time, to spare the partial
// sums a trip through the cache.
template <class T>
void SumStripOf(int64_t rows, int64_t stride, int64_t count, const T* x, float* out) {
  HWY_ALIGN float block[kStrip];
  std::fill(out, out + count, 0.0f);
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    const int64_t last = std::min(rows, first + kRowBlock);
    std::fill(block, block + count, 0.0f);
    int64_t row = first;
    for (; row + 4 <= last; row += 4) {
      const T* p = x + row * stride;
      ForRow(count, [=, &block](const auto& at) LINNET_LAMBDA {
        const Floats low = hn::Add(at.load(p), at.load(p + stride));
        const Floats high = hn::Add(at.load(p + 2 * stride), at.load(p + 3 * stride));
        at.store(hn::Add(at.load(block), hn::Add(low, high)), block);
      });
    }
    for (; row < last; ++row) {
      const T* p = x + row * stride;
      ForRow(count,
             [=, &block](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(block), at.load(p)), block); });
    }
    ForRow(count, [=, &block](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(out), at.load(block)), out); });
  }
}

void SumStrip(int64_t rows, int64_t stride, int64_t count, StoredFloats x, float* out) {
  if (x.is_bf16) return SumStripOf(rows, stride, count, x.bf16(), out);
  SumStripOf(rows, stride, count, x.f32(), out);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(SumBlocks);
HWY_EXPORT(SumStrip);
HWY_EXPORT(AddRows);

double sum_in_blocks(bool squares, int64_t n, const float* x, void* workspace, ThreadPool& pool) {
  auto* partial = static_cast<double*>(workspace);
  const int64_t blocks = ceil_div(n, kSumBlock);
  for_ranges(pool, blocks, kSumBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SumBlocks)(squares, begin, end, n, x, partial);
  });
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += partial[block];
  return total;
}

}  // namespace

size_t sum_workspace(int64_t n) { return static_cast<size_t>(ceil_div(n, kSumBlock)) * sizeof(double); }

double sum(int64_t n, const float* x, void* workspace, ThreadPool& pool) {
  return sum_in_blocks(false, n, x, workspace, pool);
}

double sum_of_squares(int64_t n, const float* x, void* workspace, ThreadPool& pool) {
  return sum_in_blocks(true, n, x, workspace, pool);
}

void block_squares(int64_t n, const float* x, double* blocks, ThreadPool& pool) {
  for_ranges(pool, ceil_div(n, kSumBlock), kSumBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SumBlocks)(true, begin, end, n, x, blocks);
  });
}

size_t sum_rows_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_chunks(rows) * width) * sizeof(float);
}

void sum_rows(int64_t rows, int64_t width, StoredFloats x, float* out, bool accumulate, void* workspace,
              ThreadPool& pool) {
  auto* partial = static_cast<float*>(workspace);  // [chunks, width]
  const int64_t chunks = row_chunks(rows), strips = ceil_div(width, kStrip);
  if (width <= 0) return;
  for_ranges(pool, chunks * strips, rows * width / (chunks * strips), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t chunk = task / strips, column = task % strips * kStrip;
      const int64_t first = rows * chunk / chunks, last = rows * (chunk + 1) / chunks;
      HWY_DYNAMIC_DISPATCH(SumStrip)
      (last - first, width, std::min(kStrip, width - column), x + first * width + column,
       partial + chunk * width + column);
    }
  });
  for_ranges(pool, strips, chunks * kStrip, [&](int64_t begin, int64_t end) {
    const int64_t column = begin * kStrip, count = std::min(width, end * kStrip) - column;
    HWY_DYNAMIC_DISPATCH(AddRows)(chunks, width, count, partial + column, accumulate, out + column);
  });
}

}  // namespace linnet
#endif

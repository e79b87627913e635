#include <algorithm>
#include <cmath>

#include "kernels/layer_norm.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_LAYER_NORM_CALL
#define LINNET_KERNELS_LAYER_NORM_CALL
namespace linnet {
namespace {

struct LayerNormForward {
  int64_t width;
  const float *x, *weight, *bias;
  float epsilon;
  float *y, *mean, *rstd;
  bool centered;
};

struct LayerNormBackward {
  int64_t width;
  const float *dy, *x, *weight, *mean, *rstd;
  float* dx;
  bool centered, wants_sums;
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void ForwardRows(const LayerNormForward& call, int64_t begin, int64_t end) {
  const int64_t width = call.width;
  const float scale = 1.0f / static_cast<float>(width);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = call.x + row * width;
    float* y = call.y + row * width;
    float mean = 0;
    if (call.centered) mean = scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA { return at.load(x); });
    // A second pass over the centred row, which is in L1: one pass would cancel where the mean is large.
    const Floats center = SetAll(mean);
    const float variance = scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA {
                             const Floats c = hn::Sub(at.load(x, mean), center);
                             return hn::Mul(c, c);
                           });
    const float rstd = 1.0f / std::sqrt(variance + call.epsilon);
    const Floats factor = SetAll(rstd);
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      Floats v = hn::Mul(hn::Sub(at.load(x), center), factor);
      if (call.weight != nullptr) v = hn::Mul(v, at.load(call.weight));
      if (call.bias != nullptr) v = hn::Add(v, at.load(call.bias));
      at.store(v, y);
    });
    if (call.mean != nullptr) call.mean[row] = mean;
    if (call.rstd != nullptr) call.rstd[row] = rstd;
  }
}

// The two sums over a row, and on the way the row's part in dweight and dbias.
template <bool kSums>
HWY_INLINE void RowSums(const LayerNormBackward& call, const float* dy, const float* x, float mean, float rstd,
                        float* dweight, float* dbias, float* sum_g, float* sum_gn) {
  const Floats center = SetAll(mean), factor = SetAll(rstd);
  Floats total_g = SetAll(0), total_gn = SetAll(0);
  ForRow(call.width, [&](const auto& at) LINNET_LAMBDA {
    const Floats n = hn::Mul(hn::Sub(at.load(x, mean), center), factor);
    const Floats d = at.load(dy), g = call.weight != nullptr ? hn::Mul(d, at.load(call.weight)) : d;
    total_g = hn::Add(total_g, g);
    total_gn = hn::MulAdd(g, n, total_gn);
    if (kSums) {
      at.store(hn::MulAdd(d, n, at.load(dweight)), dweight);
      at.store(hn::Add(d, at.load(dbias)), dbias);
    }
  });
  *sum_g = SumLanes(total_g);
  *sum_gn = SumLanes(total_gn);
}

// Rows [begin, end); sums [2, width] gets this chunk's dweight and dbias.
void BackwardRows(const LayerNormBackward& call, int64_t begin, int64_t end, float* sums) {
  const int64_t width = call.width;
  const float scale = 1.0f / static_cast<float>(width);
  if (call.wants_sums) std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    const float *x = call.x + row * width, *dy = call.dy + row * width;
    float *dx = call.dx + row * width, sum_g, sum_gn;
    const float mean = call.centered ? call.mean[row] : 0.0f, rstd = call.rstd[row];
    if (call.wants_sums)
      RowSums<true>(call, dy, x, mean, rstd, sums, sums + width, &sum_g, &sum_gn);
    else
      RowSums<false>(call, dy, x, mean, rstd, nullptr, nullptr, &sum_g, &sum_gn);
    const Floats center = SetAll(mean), factor = SetAll(rstd);
    const Floats mean_g = SetAll(call.centered ? sum_g * scale : 0.0f), mean_gn = SetAll(sum_gn * scale);
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      const Floats n = hn::Mul(hn::Sub(at.load(x), center), factor);
      const Floats d = at.load(dy), g = call.weight != nullptr ? hn::Mul(d, at.load(call.weight)) : d;
      at.store(hn::Mul(factor, hn::NegMulAdd(n, mean_gn, hn::Sub(g, mean_g))), dx);
    });
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(ForwardRows);
HWY_EXPORT(BackwardRows);
HWY_EXPORT(AddRows);

}  // namespace

void layer_norm_forward(int64_t rows, int64_t width, const float* x, const float* weight, const float* bias,
                        float epsilon, float* y, float* mean, float* rstd, ThreadPool& pool, bool centered) {
  const LayerNormForward call{width, x, weight, bias, epsilon, y, mean, rstd, centered};
  for_ranges(pool, rows, width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardRows)(call, begin, end);
  });
}

size_t layer_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_chunks(rows) * 2 * width) * sizeof(float);
}

void layer_norm_backward(int64_t rows, int64_t width, const float* dy, const float* x, const float* weight,
                         const float* mean, const float* rstd, float* dx, float* dweight, float* dbias, void* workspace,
                         ThreadPool& pool, bool centered) {
  const bool wants_sums = dweight != nullptr || dbias != nullptr;
  const LayerNormBackward call{width, dy, x, weight, mean, rstd, dx, centered, wants_sums};
  const int64_t chunks = row_chunks(rows);
  auto* sums = static_cast<float*>(workspace);  // [chunks, 2, width]
  for_ranges(pool, chunks, rows * width / chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      HWY_DYNAMIC_DISPATCH(BackwardRows)(call, rows * c / chunks, rows * (c + 1) / chunks, sums + c * 2 * width);
  });
  if (!wants_sums) return;
  constexpr int64_t columns = 64;
  for_ranges(pool, (width + columns - 1) / columns, 2 * chunks * columns, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * columns, count = std::min(width, end * columns) - first;
    if (dweight != nullptr)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + first, false, dweight + first);
    if (dbias != nullptr)
      HWY_DYNAMIC_DISPATCH(AddRows)(chunks, 2 * width, count, sums + width + first, false, dbias + first);
  });
}

}  // namespace linnet
#endif

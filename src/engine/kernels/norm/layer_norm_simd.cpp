#include <algorithm>
#include "base/error.h"
#include "engine/kernels/norm/layer_norm.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/layer_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/norm/layer_norm-inl.h"

#ifndef LINNET_KERNELS_LAYER_NORM_CALL
#define LINNET_KERNELS_LAYER_NORM_CALL
namespace linnet {
namespace {

struct LayerNormForward {
  int64_t width;
  StoredFloats x;
  const float *weight, *bias;
  float epsilon;
  MutableStoredFloats y;
  float *mean, *rstd;
  bool centered;
};

struct LayerNormBackward {
  int64_t width;
  StoredFloats dy, x;
  const float *weight, *mean, *rstd;
  MutableStoredFloats dx;
  bool centered, wants_sums;
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void ForwardRowsOf(const LayerNormForward& call, int64_t begin, int64_t end) {
  const T* x = call.x.as<T>();
  T* y = call.y.as<T>();
  for (int64_t row = begin; row < end; ++row) {
    float mean, rstd;
    NormalizeRow(call.width, x + row * call.width, call.weight, call.bias, call.epsilon, call.centered,
                 y + row * call.width, &mean, &rstd);
    if (call.mean != nullptr) call.mean[row] = mean;
    if (call.rstd != nullptr) call.rstd[row] = rstd;
  }
}

void ForwardRows(const LayerNormForward& call, int64_t begin, int64_t end) {
  call.x.is_bf16 ? ForwardRowsOf<Bfloat16>(call, begin, end) : ForwardRowsOf<float>(call, begin, end);
}

// Rows [begin, end); sums [2, width] gets this chunk's dweight and dbias.
template <class T>
HWY_INLINE void BackwardRowsOf(const LayerNormBackward& call, int64_t begin, int64_t end, float* sums) {
  const int64_t width = call.width;
  const T *dy = call.dy.as<T>(), *x = call.x.as<T>();
  if (call.wants_sums) std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    NormGradient<T> gradient(dy + row * width, x + row * width, call.weight, call.centered ? call.mean[row] : 0.0f,
                             call.rstd[row]);
    if (call.wants_sums) gradient.template add_up<true>(width, call.centered, sums, sums + width);
    else gradient.template add_up<false>(width, call.centered, nullptr, nullptr);
    T* dx = call.dx.as<T>() + row * width;
    ForRow(width, [&](const auto& at) LINNET_LAMBDA { at.store(gradient.at_position(at), dx); });
  }
}

void BackwardRows(const LayerNormBackward& call, int64_t begin, int64_t end, float* sums) {
  call.x.is_bf16 ? BackwardRowsOf<Bfloat16>(call, begin, end, sums) : BackwardRowsOf<float>(call, begin, end, sums);
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

void layer_norm_forward(int64_t rows, int64_t width, StoredFloats x, const float* weight, const float* bias,
                        float epsilon, MutableStoredFloats y, float* mean, float* rstd, ThreadPool& pool,
                        bool centered) {
  if (x.is_bf16 != y.is_bf16) fail_internal("layer_norm: x and y are of two types");
  const LayerNormForward call{width, x, weight, bias, epsilon, y, mean, rstd, centered};
  for_ranges(pool, rows, width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardRows)(call, begin, end);
  });
}

size_t layer_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_chunks(rows) * 2 * width) * sizeof(float);
}

void layer_norm_backward(int64_t rows, int64_t width, StoredFloats dy, StoredFloats x, const float* weight,
                         const float* mean, const float* rstd, MutableStoredFloats dx, float* dweight, float* dbias,
                         void* workspace, ThreadPool& pool, bool centered) {
  if (x.is_bf16 != dy.is_bf16 || x.is_bf16 != dx.is_bf16) fail_internal("layer_norm: dy, x and dx are of two types");
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

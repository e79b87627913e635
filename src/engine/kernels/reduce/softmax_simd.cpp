#include <cmath>
#include <limits>
#include "engine/kernels/parallel.h"
#include "engine/kernels/reduce/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/reduce/softmax_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/reduce/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

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

// The exponentials are computed twice: y cannot hold them before they are divided without rounding them.
void SoftmaxShorts(int64_t begin, int64_t end, int64_t width, const Bfloat16* x, Bfloat16* y) {
  x += begin * width;
  y += begin * width;
  for (int64_t row = begin; row < end; ++row, x += width, y += width) {
    const float largest = MaxRow(width, x), shift = largest == kLowest ? 0.0f : largest;
    const float sum = SumExp(width, x, shift);
    const Floats offset = SetAll(shift), scale = SetAll(sum == 0 ? 0.0f : 1.0f / sum);
    ForRow(width, [=](const auto& at)
                      LINNET_LAMBDA { at.store(hn::Mul(Exp(hn::Sub(at.load(x, kLowest), offset)), scale), y); });
  }
}

void SoftmaxRows(int64_t begin, int64_t end, int64_t width, StoredFloats x, MutableStoredFloats y) {
  if (x.is_bf16) return SoftmaxShorts(begin, end, width, x.bf16(), y.bf16());
  SoftmaxFloats(begin, end, width, x.f32(), y.f32());
}

template <class T>
void GradientRows(int64_t begin, int64_t end, int64_t width, const T* dy, const T* y, T* dx) {
  for (int64_t first = begin * width; first < end * width; first += width) {
    const T *d = dy + first, *p = y + first;
    T* to = dx + first;
    const Floats dot =
        SetAll(SumRow(width, [=](const auto& at) LINNET_LAMBDA { return hn::Mul(at.load(d), at.load(p)); }));
    ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(p), hn::Sub(at.load(d), dot)), to); });
  }
}

void SoftmaxGradientRows(int64_t begin, int64_t end, int64_t width, StoredFloats dy, StoredFloats y,
                         MutableStoredFloats dx) {
  if (dy.is_bf16) return GradientRows(begin, end, width, dy.bf16(), y.bf16(), dx.bf16());
  GradientRows(begin, end, width, dy.f32(), y.f32(), dx.f32());
}

void LogSumExpRows(int64_t begin, int64_t end, int64_t width, const float* x, float* y) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (int64_t row = begin; row < end; ++row) {
    const float* r = x + row * width;
    const float largest = MaxRow(width, r);
    const float shift = largest == -infinity ? 0.0f : largest;  // -inf - -inf would be NaN
    y[row] = largest == infinity ? infinity : shift + std::log(SumExp(width, r, shift));
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(SoftmaxGradientRows);
HWY_EXPORT(LogSumExpRows);

void softmax_forward(int64_t rows, int64_t width, StoredFloats x, MutableStoredFloats y, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SoftmaxRows)(begin, end, width, x, y);
  });
}

void softmax_backward(int64_t rows, int64_t width, StoredFloats dy, StoredFloats y, MutableStoredFloats dx,
                      ThreadPool& pool) {
  for_ranges(pool, rows, width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SoftmaxGradientRows)(begin, end, width, dy, y, dx);
  });
}

void log_sum_exp_rows(int64_t rows, int64_t width, const float* x, float* y, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LogSumExpRows)(begin, end, width, x, y);
  });
}

}  // namespace linnet
#endif

#include <algorithm>
#include <cmath>
#include "engine/kernels/loss/cross_entropy.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/loss/cross_entropy_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/reduce/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

HWY_INLINE void store_one(float x, MutableStoredFloats to) {
  if (to.is_bf16) *to.bf16() = Bfloat16(x);
  else *to.f32() = x;
}

template <class T>
void LossRowsOf(int64_t begin, int64_t end, int64_t classes, const T* logits, const int32_t* targets, double smoothing,
                float* losses, float* lse) {
  for (int64_t row = begin; row < end; ++row) {
    if (targets[row] < 0) {
      losses[row] = lse[row] = 0;
      continue;
    }
    const T* x = logits + row * classes;
    const float largest = MaxRow(classes, x);
    const double log_sum = std::log(static_cast<double>(SumExp(classes, x, largest)));
    // All terms are taken relative to the largest logit, so that a small loss is not the difference of large numbers.
    double loss = log_sum - (1 - smoothing) * (static_cast<double>(x[targets[row]]) - largest);
    if (smoothing != 0) {
      const Floats offset = SetAll(largest);
      const float sum =
          SumRow(classes, [=](const auto& at) LINNET_LAMBDA { return hn::Sub(at.load(x, largest), offset); });
      loss -= smoothing * (sum / static_cast<double>(classes));
    }
    losses[row] = static_cast<float>(loss);
    lse[row] = static_cast<float>(largest + log_sum);
  }
}

void LossRows(int64_t begin, int64_t end, int64_t classes, StoredFloats logits, const int32_t* targets,
              double smoothing, float* losses, float* lse) {
  if (logits.is_bf16) LossRowsOf(begin, end, classes, logits.bf16(), targets, smoothing, losses, lse);
  else LossRowsOf(begin, end, classes, logits.f32(), targets, smoothing, losses, lse);
}

void LossGradientRows(int64_t begin, int64_t end, int64_t classes, StoredFloats logits, const int32_t* targets,
                      float smoothing, const float* lse, float dloss, MutableStoredFloats dlogits) {
  const Floats share = SetAll(smoothing / static_cast<float>(classes)), factor = SetAll(dloss);
  for (int64_t row = begin; row < end; ++row) {
    const StoredFloats x = logits + row * classes;
    const MutableStoredFloats dx = dlogits + row * classes;
    if (targets[row] < 0) {
      ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(SetAll(0), dx); });
      continue;
    }
    const Floats offset = SetAll(lse[row]);
    const auto slope = [=](Floats logit)
                           LINNET_LAMBDA { return hn::Mul(factor, hn::Sub(Exp(hn::Sub(logit, offset)), share)); };
    // The target's element is rounded once, after the subtraction.
    const float of_target = hn::GetLane(slope(SetAll(x[targets[row]]))) - dloss * (1 - smoothing);
    ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(slope(at.load(x)), dx); });
    store_one(of_target, dx + targets[row]);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(LossRows);
HWY_EXPORT(LossGradientRows);

void cross_entropy_forward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
                           float* losses, float* lse, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossRows)(begin, end, classes, logits, targets, smoothing, losses, lse);
  });
}

void cross_entropy_backward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
                            const float* lse, float dloss, MutableStoredFloats dlogits, ThreadPool& pool) {
  for_ranges(pool, rows, classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossGradientRows)
    (begin, end, classes, logits, targets, smoothing, lse, dloss, dlogits);
  });
}

}  // namespace linnet
#endif

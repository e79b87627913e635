#include <algorithm>
#include <cmath>

#include "kernels/loss/cross_entropy.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/loss/cross_entropy_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/reduce/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void LossRows(int64_t begin, int64_t end, int64_t classes, const float* logits, const int32_t* targets,
              double smoothing, float* losses, float* lse) {
  for (int64_t row = begin; row < end; ++row) {
    if (targets[row] < 0) {
      losses[row] = lse[row] = 0;
      continue;
    }
    const float* x = logits + row * classes;
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

void LossGradientRows(int64_t begin, int64_t end, int64_t classes, const float* logits, const int32_t* targets,
                      float smoothing, const float* lse, float dloss, float* dlogits) {
  const Floats share = SetAll(smoothing / static_cast<float>(classes)), factor = SetAll(dloss);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = logits + row * classes;
    float* dx = dlogits + row * classes;
    if (targets[row] < 0) {
      std::fill(dx, dx + classes, 0.0f);
      continue;
    }
    const Floats offset = SetAll(lse[row]);
    ForRow(classes, [=](const auto& at) LINNET_LAMBDA {
      at.store(hn::Mul(factor, hn::Sub(Exp(hn::Sub(at.load(x), offset)), share)), dx);
    });
    dx[targets[row]] -= dloss * (1 - smoothing);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(LossRows);
HWY_EXPORT(LossGradientRows);

void cross_entropy_forward(int64_t rows, int64_t classes, const float* logits, const int32_t* targets, float smoothing,
                           float* losses, float* lse, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossRows)(begin, end, classes, logits, targets, smoothing, losses, lse);
  });
}

void cross_entropy_backward(int64_t rows, int64_t classes, const float* logits, const int32_t* targets, float smoothing,
                            const float* lse, float dloss, float* dlogits, ThreadPool& pool) {
  for_ranges(pool, rows, classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossGradientRows)
    (begin, end, classes, logits, targets, smoothing, lse, dloss, dlogits);
  });
}

}  // namespace linnet
#endif

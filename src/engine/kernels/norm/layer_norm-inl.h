// Layer normalization of one row, and what its gradient needs: shared by layer_norm_simd.cpp and
// residual_norm_simd.cpp. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_LAYER_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LAYER_NORM_INL_H_
#undef LINNET_KERNELS_LAYER_NORM_INL_H_
#else
#define LINNET_KERNELS_LAYER_NORM_INL_H_
#endif

#include <cmath>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// y = (x - mean) * rstd * weight + bias; weight and bias may be null. mean is 0 when not centered. T is float or
// Bfloat16.
template <class T>
HWY_INLINE void NormalizeRow(int64_t width, const T* x, const float* weight, const float* bias, float epsilon,
                             bool centered, T* y, float* mean, float* rstd) {
  const float scale = 1.0f / static_cast<float>(width);
  *mean = centered ? scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA { return at.load(x); }) : 0.0f;
  // A second pass over the centered row, which is in L1: one pass would cancel where the mean is large.
  const float filler = *mean;
  const Floats center = SetAll(filler);
  const float variance = scale * SumRow(width, [=](const auto& at) LINNET_LAMBDA {
                           const Floats c = hn::Sub(at.load(x, filler), center);
                           return hn::Mul(c, c);
                         });
  *rstd = 1.0f / std::sqrt(variance + epsilon);
  const Floats factor = SetAll(*rstd);
  ForRow(width, [&](const auto& at) LINNET_LAMBDA {
    Floats v = hn::Mul(hn::Sub(at.load(x), center), factor);
    if (weight != nullptr) v = hn::Mul(v, at.load(weight));
    if (bias != nullptr) v = hn::Add(v, at.load(bias));
    at.store(v, y);
  });
}

// The gradient of a row, with n = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - sum(g) / width (when centered) - n * sum(g n) / width)
template <class T>
struct NormGradient {
  const T *dy, *x;
  const float* weight;  // may be null
  float mean, rstd;
  Floats center, factor, mean_g, mean_gn;

  HWY_INLINE NormGradient(const T* dy_row, const T* x_row, const float* weight_row, float row_mean, float row_rstd)
      : dy(dy_row),
        x(x_row),
        weight(weight_row),
        mean(row_mean),
        rstd(row_rstd),
        center(SetAll(row_mean)),
        factor(SetAll(row_rstd)),
        mean_g(SetAll(0)),
        mean_gn(SetAll(0)) {}

  template <class At>
  HWY_INLINE Floats slope(const At& at) const {
    const Floats d = at.load(dy);
    return weight != nullptr ? hn::Mul(d, at.load(weight)) : d;
  }

  // The two sums over the row, and on the way the row's part in dweight and dbias.
  template <bool kSums>
  HWY_INLINE void add_up(int64_t width, bool centered, float* dweight, float* dbias) {
    Floats total_g = SetAll(0), total_gn = SetAll(0);
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      const Floats n = hn::Mul(hn::Sub(at.load(x, mean), center), factor), g = slope(at);
      total_g = hn::Add(total_g, g);
      total_gn = hn::MulAdd(g, n, total_gn);
      if (kSums) {
        const Floats d = at.load(dy);
        at.store(hn::MulAdd(d, n, at.load(dweight)), dweight);
        at.store(hn::Add(d, at.load(dbias)), dbias);
      }
    });
    const float scale = 1.0f / static_cast<float>(width);
    mean_g = SetAll(centered ? SumLanes(total_g) * scale : 0.0f);
    mean_gn = SetAll(SumLanes(total_gn) * scale);
  }

  // dx, once the sums are known.
  template <class At>
  HWY_INLINE Floats at_position(const At& at) const {
    const Floats n = hn::Mul(hn::Sub(at.load(x), center), factor);
    return hn::Mul(factor, hn::NegMulAdd(n, mean_gn, hn::Sub(slope(at), mean_g)));
  }
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

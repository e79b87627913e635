// What softmax and cross-entropy share. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_SOFTMAX_INL_H_
#undef LINNET_KERNELS_SOFTMAX_INL_H_
#else
#define LINNET_KERNELS_SOFTMAX_INL_H_
#endif

#include <limits>
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// The largest element; which one is unspecified when some are NaN, since the exponentials then are NaN anyway.
template <class T>
HWY_INLINE float MaxRow(int64_t width, const T* x) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const Floats largest = FoldRow(
      width, lowest, [=](const auto& at) LINNET_LAMBDA { return at.load(x, lowest); },
      [](Floats a, Floats b) LINNET_LAMBDA { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), largest));
}

// The sum of exp(x - shift); lanes past the end add exp(-inf) = 0.
template <class T>
HWY_INLINE float SumExp(int64_t width, const T* x, float shift) {
  const Floats offset = SetAll(shift);
  return SumRow(width, [=](const auto& at) LINNET_LAMBDA {
    return Exp(hn::Sub(at.load(x, -std::numeric_limits<float>::infinity()), offset));
  });
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

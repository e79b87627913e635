#include "vector_math.h"

#define HWY_TARGET_INCLUDE "vector_math_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
template <Floats (*kFunction)(Floats)> HWY_NOINLINE void apply(int64_t n, const float* x, float* y) {
  ForRow(n, [=](const auto& at) LINNET_LAMBDA { at.store(kFunction(at.load(x)), y); });
}

void array_math(VectorFunction function, int64_t n, const float* x, float* y) {
  switch (function) {
    case VectorFunction::kExp: return apply<Exp>(n, x, y);
    case VectorFunction::kLog: return apply<Log>(n, x, y);
    case VectorFunction::kTanh: return apply<Tanh>(n, x, y);
    case VectorFunction::kErf: return apply<Erf>(n, x, y);
    case VectorFunction::kSigmoid: return apply<Sigmoid>(n, x, y);
    case VectorFunction::kSin: return apply<Sin>(n, x, y);
    case VectorFunction::kCos: return apply<Cos>(n, x, y);
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(array_math);

void vector_math(VectorFunction function, int64_t n, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(array_math)(function, n, x, y);
}
}  // namespace linnet
#endif

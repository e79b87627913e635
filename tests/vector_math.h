// exp, log, tanh, erf, sigmoid, sin and cos over arrays: the vector functions of vector_math-inl.h, for their tests.
#pragma once
#include <cstdint>

namespace linnet {
enum class VectorFunction { kExp, kLog, kTanh, kErf, kSigmoid, kSin, kCos };

// y[i] = function(x[i]); y may be x.
void vector_math(VectorFunction function, int64_t n, const float* x, float* y);
}  // namespace linnet

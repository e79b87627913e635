// Rounding to what IEEE half precision (fp16) can hold: 11 bits of mantissa, multiples of 2^-24 below 2^-14, and
// infinity from 65520 on.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include "base/thread_pool.h"

namespace linnet {

// The nearest number of fp16, ties to even. NaN stays NaN.
template <class T>
T round_to_half(T x) {
  constexpr int kLeastExponent = -14, kFractionBits = 10;
  if (x == 0 || !std::isfinite(x)) return x;
  const T spacing = std::ldexp(T(1), std::max(std::ilogb(x), kLeastExponent) - kFractionBits);
  const T rounded = std::nearbyint(x / spacing) * spacing;
  return std::abs(rounded) > T(65504) ? std::copysign(std::numeric_limits<T>::infinity(), x) : rounded;
}

// The same of n floats, for all instruction sets in the same bits. to may be from.
void round_to_half(int64_t n, const float* from, float* to, ThreadPool& pool);

}  // namespace linnet

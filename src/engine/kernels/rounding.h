// Rounding of whole arrays, in the same bits on every instruction set and for any number of threads.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include "base/thread_pool.h"

namespace linnet {
// To IEEE half precision (fp16): 11 bits of mantissa, multiples of 2^-24 below 2^-14, infinity from 65520 on. NaN
// stays.
template <class T> T round_to_half(T x) {
  constexpr int kLeastExponent = -14, kFractionBits = 10;
  if (x == 0 || !std::isfinite(x)) return x;
  const T spacing = std::ldexp(T(1), std::max(std::ilogb(x), kLeastExponent) - kFractionBits);
  const T rounded = std::nearbyint(x / spacing) * spacing;
  return std::abs(rounded) > T(65504) ? std::copysign(std::numeric_limits<T>::infinity(), x) : rounded;
}

// The same of n floats. to may be from.
void round_to_half(int64_t n, const float* from, float* to, ThreadPool& pool);

// Stochastic rounding to bf16: to either neighbor of a number, with probabilities that make the number the expectation.
// Updates of less than half of the neighbors' distance, which rounding to nearest loses, then still count on average.
//
// y[i] = the upper half of the bits of x[i] + r, where r in [0, 65536) is the 16-bit value i of the row {kBf16Rounding,
// 0, 0} under `key` (engine/kernels/random/philox.h). Numbers of bf16, infinity and NaN stay what they are. x
// and y do not overlap.
void round_to_bf16_stochastic(int64_t count, const float* x, uint16_t* y, uint64_t key, ThreadPool& pool);

constexpr uint32_t kBf16Rounding = 0xBF16;

uint16_t round_to_bf16_by(float x, uint16_t r);  // the same for one number and a value r, for references

// Rounds weights to integers (quantized/packed_weight.h): `count` finite numbers to multiples of `scale` within [low,
// high], ties to even. Returns the sum of squared errors, in squared steps.
float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes);

// Rounds up to 16 columns of a matrix [depth, ...], whose rows are `stride` apart, to rows of a panel of
// WeightFormat::kInt8 (quantized/packed_weight.h), each by its largest magnitude, which becomes `most`. codes[round
// up(depth, 32) * 16], scales[16], sums[16]. The codes are round_codes()' with the scale.
void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
    float* scales, int32_t* sums);
}  // namespace linnet

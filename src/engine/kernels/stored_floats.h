// Floats in memory as fp32 or bf16; arithmetic is fp32. engine/kernels/lanes-inl.h loads and stores vectors of them.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"

namespace linnet {
// Bytes of `count` elements.
template <class T> constexpr size_t bytes_for(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }

// The upper half of an fp32 number. Rounds a float like round_to_bf16 (engine/kernels/precision.h).
struct Bfloat16 {
  Bfloat16() = default;
  explicit Bfloat16(float x) : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(x)) >> 16)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  uint16_t bits;
};
static_assert(sizeof(Bfloat16) == 2);

extern const bool kProcessorRoundsToBf16;  // AVX-512-BF16

// A pointer to floats of either type; null for a missing operand. Offsets count elements.
template <bool kMutable> struct BasicStoredFloats {
  template <class T> using Pointer = std::conditional_t<kMutable, T*, const T*>;

  BasicStoredFloats() = default;
  BasicStoredFloats(std::nullptr_t) {}
  BasicStoredFloats(Pointer<float> floats) : data(floats) {}
  BasicStoredFloats(Pointer<Bfloat16> floats) : data(floats), is_bf16(true) {}
  BasicStoredFloats(Pointer<void> floats, bool bf16) : data(floats), is_bf16(bf16) {}
  template <bool kOther>
  requires(kOther && !kMutable) BasicStoredFloats(const BasicStoredFloats<kOther>& other)
      : data(other.data), is_bf16(other.is_bf16) {}

  template <class T>  // float or Bfloat16, as is_bf16 says
  Pointer<T> as() const {
    return static_cast<Pointer<T>>(data);
  }
  Pointer<float> f32() const { return as<float>(); }
  Pointer<Bfloat16> bf16() const { return as<Bfloat16>(); }
  float operator[](int64_t i) const { return is_bf16 ? static_cast<float>(bf16()[i]) : f32()[i]; }
  BasicStoredFloats operator+(int64_t offset) const {
    return is_bf16 ? BasicStoredFloats(bf16() + offset) : BasicStoredFloats(f32() + offset);
  }
  explicit operator bool() const { return data != nullptr; }

  Pointer<void> data = nullptr;
  bool is_bf16 = false;
};
using StoredFloats = BasicStoredFloats<false>;
using MutableStoredFloats = BasicStoredFloats<true>;

// to[i] = 0 for i < n.
inline void clear_floats(int64_t n, MutableStoredFloats to) {
  std::memset(to.data, 0, static_cast<size_t>(n) * (to.is_bf16 ? sizeof(Bfloat16) : sizeof(float)));
}

// to[i] = from[i] for i < n, rounded if only `to` is bf16. `to` may be `from` if both have the same type.
void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to, ThreadPool& pool);
void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to);  // on the calling thread

// Rounding of whole arrays, in the same bits on every instruction set and for any number of threads.

// To IEEE half precision: 11 bits of mantissa, multiples of 2^-24 below 2^-14, infinity from 65520 on. NaN stays.
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

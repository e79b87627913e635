// The precision in which a product multiplies. Sums are always fp32.
#pragma once
#include <bit>
#include <cstdint>
#include "base/enum_names.h"

namespace linnet {
enum class Precision : uint8_t {
  kF32,
  kTf32,  // operands are rounded to 10 bits of mantissa by a GPU's matrix units; fp32 on the CPU
  kBf16,  // operands are rounded to bfloat16 (nearest even) on their way into the product; fp32 where the CPU cannot
  kF16,   // operands are rounded to IEEE half precision, beyond 65504 to infinity, by nodes before the product, which
          // itself is kF32: for the loss scale and what overflows, not for speed
};

// The nearest bfloat16 as the processor rounds (vcvtne2ps2bf16): ties to even, denormals to zero, NaN stays NaN.
inline float round_to_bf16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  else if (x != x) bits |= 0x00400000u;
  else bits += 0x7fffu + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// An operand as the product of a reference kernel sees it: in float64 the precision means nothing.
inline double rounded_operand(float x, Precision precision) {
  return precision == Precision::kBf16 ? round_to_bf16(x) : x;
}
inline double rounded_operand(double x, Precision) { return x; }

template <> inline constexpr std::array kEnumNames<Precision>{"fp32", "tf32", "bf16", "fp16"};
inline const char* precision_name(Precision precision) { return enum_name(precision); }
}  // namespace linnet

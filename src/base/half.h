// IEEE numbers of 16 bits.
#pragma once
#include <bit>
#include <cstdint>

namespace linnet {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = static_cast<float>(fraction) * 0x1p-24F;  // a subnormal half
  return sign ? -value : value;
}

}  // namespace linnet

// In what precision a product multiplies. Sums are always fp32.
#pragma once
#include <cstdint>

namespace linnet {

enum class Precision : uint8_t {
  kF32,
  kBf16,  // operands are rounded to bfloat16 (nearest even) on their way into the product; fp32 where the CPU cannot
};

inline const char* precision_name(Precision precision) { return precision == Precision::kBf16 ? "bf16" : "fp32"; }

}  // namespace linnet

// Functions fused into products and convolutions, with the same bits as ops/pointwise. NaN stays NaN.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>

namespace linnet {
// The first four have derivatives. kSilu: x sigmoid(x); kHardSwish: x max(0, min(1, x / 6 + 1 / 2)); kRelu6: ReLU up
// to 6.
enum class GemmActivation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu, kHardSwish, kRelu6 };
inline std::span<const char* const> enum_names(GemmActivation) {
  static constexpr std::array kNames{"none", "relu", "gelu", "gelu_tanh", "silu", "hard_swish", "relu6"};
  return kNames;
}

// In double precision, for references: the functions, and the slopes of the first four.
inline double gemm_activation(GemmActivation f, double x) {
  constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
  switch (f) {
    case GemmActivation::kNone: return x;
    case GemmActivation::kRelu: return x < 0 ? 0 : x;
    case GemmActivation::kGelu: return x * (1 + std::erf(x / std::numbers::sqrt2)) / 2;
    case GemmActivation::kGeluTanh: return x * (1 + std::tanh(kRoot * (x + kCube * x * x * x))) / 2;
    case GemmActivation::kSilu: return x / (1 + std::exp(-x));
    case GemmActivation::kHardSwish: return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case GemmActivation::kRelu6: return std::clamp(x, 0.0, 6.0);
  }
  return x;
}

inline double gemm_slope(GemmActivation f, double x) {
  constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
  switch (f) {
    case GemmActivation::kRelu: return x > 0 ? 1 : 0;
    case GemmActivation::kGelu:
      return (1 + std::erf(x / std::numbers::sqrt2)) / 2 +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case GemmActivation::kGeluTanh: {
      const double tanh = std::tanh(kRoot * (x + kCube * x * x * x));
      return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * kRoot * (1 + 3 * kCube * x * x);
    }
    case GemmActivation::kNone: return 1;
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}
}  // namespace linnet

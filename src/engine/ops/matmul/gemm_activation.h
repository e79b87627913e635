// The activation functions of products in double precision, for reference kernels.
#pragma once
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "engine/kernels/gemm/gemm.h"

namespace linnet {

inline constexpr double kGeluRoot = 0.7978845608028654, kGeluCube = 0.044715;  // sqrt(2 / pi)

inline double gemm_activation(GemmActivation f, double x) {
  switch (f) {
    case GemmActivation::kNone:
      return x;
    case GemmActivation::kRelu:
      return x < 0 ? 0 : x;
    case GemmActivation::kGelu:
      return x * (1 + std::erf(x / std::numbers::sqrt2)) / 2;
    case GemmActivation::kGeluTanh:
      return x * (1 + std::tanh(kGeluRoot * (x + kGeluCube * x * x * x))) / 2;
  }
  fail_internal("an unknown activation function");
}

}  // namespace linnet

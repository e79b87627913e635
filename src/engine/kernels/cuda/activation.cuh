// The activations that follow a matrix product.
#pragma once
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/gemm/gemm.h"

namespace linnet {
constexpr float kGeluRoot = 0.7978845608028654f, kGeluCube = 0.044715f, kRootHalf = 0.70710678118654752f;

LINNET_DEVICE float activated(GemmActivation f, float x) {
  if (f == GemmActivation::kRelu) return x < 0 ? 0 : x;  // NaN stays
  if (f == GemmActivation::kGelu) return 0.5f * x * (1 + erff(x * kRootHalf));
  if (f == GemmActivation::kGeluTanh) return 0.5f * x * (1 + tanhf(kGeluRoot * (x + kGeluCube * x * x * x)));
  return x;
}
}  // namespace linnet

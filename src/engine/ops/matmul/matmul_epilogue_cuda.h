// The epilogue of a matrix product that cuBLASLt cannot do in the same kernel.
#pragma once
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/kernel.h"

namespace linnet {
// y = x [+ bias]; pre_activation = y; out = activation(y), or scale * y * derivative'(aux).
// x, aux, pre_activation, out are [rows, width] of `type`; x may be pre_activation or out. bias [width] of `bias_type`.
struct MatmulEpilogue {
  int64_t rows, width;
  DType type = DType::kF32;
  const void* x = nullptr;
  const void* bias = nullptr;
  DType bias_type = DType::kF32;
  const void* aux = nullptr;
  void *pre_activation = nullptr, *out = nullptr;
  GemmActivation activation = GemmActivation::kNone, derivative = GemmActivation::kNone;
  float scale = 1;
};
void matmul_epilogue(Device* device, const MatmulEpilogue& epilogue);

void round_to_bf16_on_device(Device* device, int64_t n, const float* from, void* to);  // n elements
}  // namespace linnet

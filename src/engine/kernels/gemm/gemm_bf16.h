// The bf16 parts of engine/kernels/gemm/gemm.h and engine/kernels/peak.h, compiled apart because they need one
// instruction set more.
#pragma once
#include "engine/kernels/gemm/gemm.h"

namespace linnet {

// The product with operands rounded to bf16 while they are packed. False, and nothing done, where the current
// instruction set has no bf16 multiply-add or the product is one that is not packed (few rows or columns).
// panels: B as pack_bf16_panels() leaves it, or null.
bool gemm_bf16(const GemmArgs& args, const float* panels, float* workspace, ThreadPool& pool);
// See pack_panels() in panels.h. False, and nothing done, without the instructions.
bool pack_bf16_panels(const GemmArgs& args, float* panels, ThreadPool& pool);

// The loop behind measured_peak_gflops, and how many operations one round of it is. Only with gemm_has_bf16().
float bf16_multiply_adds(int64_t rounds);
double bf16_round_operations();

}  // namespace linnet

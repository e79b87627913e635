// The bf16 parts of engine/kernels/gemm/gemm.h and engine/kernels/peak.h, compiled apart for another instruction set.
#pragma once
#include "engine/kernels/gemm/gemm.h"

namespace linnet {
// The product with operands rounded to bf16 while they are packed. False, without effect, if the current instruction
// set has no bf16 multiply-add or the product is not packed (few rows or columns). panels: pack_bf16_panels()' or null.
bool gemm_bf16(const GemmArgs& args, const float* panels, float* workspace, ThreadPool& pool);
// See pack_panels() in panels.h. False, without effect, without the instructions.
bool pack_bf16_panels(const GemmArgs& args, float* panels, ThreadPool& pool);

// The loop of measured_peak_gflops(), and the operations of a round. Only with gemm_has_bf16().
float bf16_multiply_adds(int64_t rounds);
double bf16_round_operations();
}  // namespace linnet

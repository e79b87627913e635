// The bf16 half of gemm (kernels/gemm.h), in a file of its own because it needs one instruction set more.
#pragma once
#include "kernels/gemm.h"

namespace linnet {

// The product with operands rounded to bf16 while they are packed. False, and nothing done, where the current
// instruction set has no bf16 multiply-add or the product is one that is not packed (few rows or columns).
bool gemm_bf16(const GemmArgs& args, float* workspace, ThreadPool& pool);

}  // namespace linnet

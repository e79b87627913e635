// Sums of a matrix's columns on a GPU, for kernels that need them beside something else.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {

size_t column_sums_workspace(int64_t rows, int64_t width, DType dtype);  // bytes
// Queues sums[j] = sum over i of x[i, j]: x [rows, width], fp32 or bf16.
void column_sums(Device* device, int64_t rows, int64_t width, const TensorView& x, float* sums, std::byte* workspace);

}  // namespace linnet

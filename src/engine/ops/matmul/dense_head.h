// The kernel of matmul for linear layers with few outputs (engine/kernels/conv/dense_head.h): the product itself, y = x
// w^T, and both of its gradients.
#pragma once
#include "engine/kernels/conv/dense_head.h"
#include "engine/ops/kernel.h"

namespace linnet {

bool dense_head_supports(const KernelQuery& query);
void run_dense_head(const KernelArgs& args);
// What it runs for the gradients, in a file of its own for libraries without training.

}  // namespace linnet

// The CUDA kernels of every op: what all_ops.h is for the CPU, in the module that is loaded for --device cuda. Each is
// in its op's folder, in x_cuda.cu. In the emulation (LINNET_CUDA_EMULATION) the same list, without what NVIDIA's
// libraries do.
#pragma once
#include "ops/kernel.h"

namespace linnet {

std::span<const BackendOp> cuda_ops();

KernelList layer_norm_cuda_kernels();
KernelList layer_norm_grad_cuda_kernels();

}  // namespace linnet

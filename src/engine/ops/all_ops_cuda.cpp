// The CUDA kernels of every op, from x_cuda.cu of its folder. LINNET_CUDA_EMULATION has no libraries of NVIDIA.
#include "engine/ops/op_table.h"

namespace linnet {
#define LINNET_CUDA_KERNELS(op, name, cuda) LINNET_CUDA_KERNELS_##cuda(name)
#define LINNET_CUDA_KERNELS_kOwn(name) KernelList name##_cuda_kernels();
#define LINNET_CUDA_KERNELS_kLibrary(name) LINNET_CUDA_KERNELS_kOwn(name)
#define LINNET_CUDA_KERNELS_kNone(name)
#define LINNET_CUDA_ENTRY(op, name, cuda) LINNET_CUDA_ENTRY_##cuda(name)
#define LINNET_CUDA_ENTRY_kOwn(name) BackendOp{#name, name##_cuda_kernels()},
#ifdef LINNET_CUDA_EMULATION
#define LINNET_CUDA_ENTRY_kLibrary(name)
#else
#define LINNET_CUDA_ENTRY_kLibrary(name) LINNET_CUDA_ENTRY_kOwn(name)
#endif
#define LINNET_CUDA_ENTRY_kNone(name)

LINNET_OPS(LINNET_CUDA_KERNELS)
KernelList attention_cudnn_kernels();
KernelList attention_grad_cudnn_kernels();
KernelList conv2d_cudnn_kernels();
KernelList conv2d_input_grad_cudnn_kernels();
KernelList conv2d_weight_grad_cudnn_kernels();

std::span<const BackendOp> cuda_ops() {
  static const std::vector<BackendOp> ops{
#ifndef LINNET_CUDA_EMULATION
      {"attention", attention_cudnn_kernels()}, {"attention_grad", attention_grad_cudnn_kernels()},
      {"conv2d", conv2d_cudnn_kernels()}, {"conv2d_input_grad", conv2d_input_grad_cudnn_kernels()},
      {"conv2d_weight_grad", conv2d_weight_grad_cudnn_kernels()},
#endif
      LINNET_OPS(LINNET_CUDA_ENTRY)};
  return ops;
}
}  // namespace linnet

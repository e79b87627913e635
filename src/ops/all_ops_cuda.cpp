#include <array>

#include "ops/cuda_kernels.h"

namespace linnet {

std::span<const BackendOp> cuda_ops() {
  static const std::array ops{
      BackendOp{"layer_norm", layer_norm_cuda_kernels()},
      BackendOp{"layer_norm_grad", layer_norm_grad_cuda_kernels()},
  };
  return ops;
}

}  // namespace linnet

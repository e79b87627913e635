// Layer normalization over the last axis (Ba, Kiros & Hinton 2016).
//
//   y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(variance + epsilon), variance over N, not N - 1
//
// x [..., D], weight [D], bias [D] -> y [..., D], mean [..., 1], rstd [..., 1]
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct LayerNormAttrs {
  double epsilon = 1e-5;
  std::string text() const { return "epsilon=" + std::to_string(epsilon); }
};

extern const OpDef kLayerNorm, kLayerNormGrad;
KernelList layer_norm_kernels();
KernelList layer_norm_grad_kernels();

Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);

}  // namespace linnet

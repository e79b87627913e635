// The end of a sub-layer of a Transformer in one op: dropout of its result, addition to the residual stream, and the
// norm that follows (ops/dropout, ops/layer_norm). The pass fuse_residual_norm makes these.
//
//   sum = x + dropout(f),  y = layer_norm(sum)
//
// x, f [..., D], weight, bias [D], random i32 [4] (with dropout) -> sum, y [..., D], mean, rstd [..., 1]
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct ResidualNormAttrs {
  double epsilon = 1e-5;
  float probability = 0;  // of dropout; 0: none
  uint64_t site = 0;
  bool dsum = false;  // of the gradient: something flows into `sum` from elsewhere
  std::string text() const;
};

// x, f, weight, bias, [random] -> sum, y, mean, rstd
extern const OpDef kResidualNorm;
// dy, sum, weight, mean, rstd, [dsum], [random] -> dx, dweight, dbias, [df]. Without dropout df is dx.
//   dx = dsum + the gradient of layer normalization,  df = dropout(dx)
extern const OpDef kResidualNormGrad;
KernelList residual_norm_kernels();
KernelList residual_norm_grad_kernels();

struct ResidualNorm {
  Tensor sum, normal;
};
// `random` undefined: without dropout.
ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs);

}  // namespace linnet

// The end of a sub-layer of a Transformer in one op: dropout of its result, addition to the residual stream, and the
// norm that follows (ops/dropout, ops/layer_norm). The pass fuse_residual_norm makes these.
//
//   sum = x + dropout(f),  y = layer_norm(sum) or rms_norm(sum)
//
// x, f [..., D], weight, bias [D] (where the norm has them), random i32 [4] (with dropout)
// -> sum, y [..., D], mean, rstd [..., 1]
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"
#include "engine/ops/layer_norm/layer_norm.h"

namespace linnet {

struct ResidualNormAttrs {
  LayerNormAttrs norm = {};
  float probability = 0;  // of dropout; 0: none
  uint64_t site = 0;
  bool dsum = false;                                      // of the gradient: something flows into `sum` from elsewhere
  int dsum_input() const { return 4 + norm.has_weight; }  // of the gradient
  void fields(FieldVisitor& visit) {
    visit("norm", norm), visit("probability", probability), visit("site", site), visit("dsum", dsum);
  }
};

// x, f, [weight], [bias], [random] -> sum, y, mean, rstd
extern const OpDef kResidualNorm;
// dy, sum, mean, rstd, [weight], [dsum], [random] -> dx, [dweight], [dbias], [df]. Without dropout df is dx.
//   dx = dsum + the gradient of the norm,  df = dropout(dx)
extern const OpDef kResidualNormGrad;

struct ResidualNorm {
  Tensor sum, normal;
};
// weight, bias and `random` may be undefined where attrs say that there are none.
ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs);

}  // namespace linnet

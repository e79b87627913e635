// Normalization over the last axis: layer normalization (Ba, Kiros & Hinton 2016) and, not centered, root-mean-square
// normalization (Zhang & Sennrich 2019).
//
//   y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(variance + epsilon), variance over N, not N - 1
//  x [..., D], weight [D], bias [D] -> y [..., D], mean [..., 1], rstd [..., 1] If x is bf16 only y is, too. Weight and
// bias are optional. Not centered: y = x / sqrt(mean(x^2) + epsilon) * weight.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct LayerNormAttrs {
  double epsilon = 1e-5;
  bool centered = true, has_weight = true, has_bias = true;
  size_t parameters() const { return size_t{has_weight} + has_bias; }
  void fields(FieldVisitor& visit) {
    visit("epsilon", epsilon), visit("centered", centered), visit("has_weight", has_weight);
    visit("has_bias", has_bias);
  }
};

extern const OpDef kLayerNorm;      // x, [weight], [bias] -> y, mean, rstd
extern const OpDef kLayerNormGrad;  // dy, x, mean, rstd, [weight] -> dx, [dweight], [dbias]

// Weight and bias may be undefined.
Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
Tensor rms_norm(At x, Tensor weight, double epsilon = 1e-6);

// The end of a Transformer's sub-layer in one op: dropout of its result, addition to the residual stream, and the
// following norm (ops/dropout). Made by the pass fuse_residual_norm.
//
//   sum = x + dropout(f),  y = layer_norm(sum) or rms_norm(sum)
//
// x, f [..., D], weight, bias [D] (where the norm has them), random i32 [4] (with dropout)
// -> sum, y [..., D], mean, rstd [..., 1]
struct ResidualNormAttrs {
  LayerNormAttrs norm = {};
  float probability = 0;  // of dropout; 0: none
  uint64_t site = 0;
  bool dsum = false;  // of the gradient: something flows into `sum` from elsewhere
  size_t dsum_input() const { return 4u + norm.has_weight; }  // of the gradient
  void fields(FieldVisitor& visit) {
    visit("norm", norm), visit("probability", probability), visit("site", site), visit("dsum", dsum);
  }
};

extern const OpDef kResidualNorm;  // x, f, [weight], [bias], [random] -> sum, y, mean, rstd
// dy, sum, mean, rstd, [weight], [dsum], [random] -> dx, [dweight], [dbias], [df]. dx = dsum + the gradient of the
// norm, df = dropout(dx). Without dropout df is dx.
extern const OpDef kResidualNormGrad;

struct ResidualNorm {
  Tensor sum, normal;
};
// Operands that attrs exclude may be undefined.
ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs);
}  // namespace linnet

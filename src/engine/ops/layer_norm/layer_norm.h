// Normalization over the last axis: layer normalization (Ba, Kiros & Hinton 2016), and not centered, root-mean-square
// normalization (Zhang & Sennrich 2019).
//
//   y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(variance + epsilon), variance over N, not N - 1
//
// x [..., D], weight [D], bias [D] -> y [..., D], mean [..., 1], rstd [..., 1]
// Where x is bf16 only y is, too. Weight and bias may be left out. Not centered, the mean is taken to be 0: y = x /
// sqrt(mean(x^2) + epsilon) * weight.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct LayerNormAttrs {
  double epsilon = 1e-5;
  bool centered = true, has_weight = true, has_bias = true;
  void fields(FieldVisitor& visit) {
    visit("epsilon", epsilon), visit("centered", centered), visit("has_weight", has_weight);
    visit("has_bias", has_bias);
  }
};

// x, [weight], [bias] -> y, mean, rstd
extern const OpDef kLayerNorm;
// dy, x, mean, rstd, [weight] -> dx, [dweight], [dbias]
extern const OpDef kLayerNormGrad;

// Weight and bias may be undefined.
Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
Tensor rms_norm(At x, Tensor weight, double epsilon = 1e-6);

// What the parameters of a norm over x must be; adds what is missing to an error.
void expect_norm_parameters(const LayerNormAttrs& attrs, const TensorType& x, std::span<const TensorType> parameters);

}  // namespace linnet

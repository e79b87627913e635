// Batch normalization in training (Ioffe & Szegedy 2015), over all axes but the last, the channels.
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//
// x [..., C], weight [C], bias [C] -> y [..., C], mean [C], variance [C]: the batch's, the variance over a channel's N
// elements, not N - 1. Mean and variance have no gradient; they are for running statistics. The pass fuse_batch_norm
// makes y = relu(... + residual). The gradient of a fused ReLU recomputes from x which elements were above zero.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
struct BatchNormAttrs {
  double epsilon = 1e-5;
  // Set by fuse_batch_norm, which runs after gradients are traced. CPU only.
  bool residual = false, relu = false;
  void fields(FieldVisitor& visit) { visit("epsilon", epsilon), visit("residual", residual), visit("relu", relu); }
};

extern const OpDef kBatchNorm;  // x, weight, bias[, residual of x's shape] -> y, mean, variance
// dy, x, weight, mean, variance[, bias: with relu] -> dx, dweight, dbias
extern const OpDef kBatchNormGrad;

struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
}  // namespace linnet

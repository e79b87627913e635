// Batch normalization while training (Ioffe & Szegedy 2015): over all axes but the last, which holds the channels.
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//
// x [..., C], weight [C], bias [C] -> y [..., C], mean [C], variance [C]: those of the batch, the variance over the N
// elements of a channel, not N - 1. Nothing flows back through mean and variance: they are for running statistics.
//
// The pass fuse_batch_norm makes what follows a part of it: y = relu(... + residual). The gradient of a fused ReLU
// computes again which elements were above zero, from x.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct BatchNormAttrs {
  double epsilon = 1e-5;
  // Set by fuse_batch_norm, which runs after gradients are traced. The CPU's kernels have them.
  bool residual = false, relu = false;
  void fields(FieldVisitor& visit) { visit("epsilon", epsilon), visit("residual", residual), visit("relu", relu); }
};

// x, weight, bias[, residual of x's shape] -> y, mean, variance
extern const OpDef kBatchNorm;
// dy, x, weight, mean, variance[, bias: with relu] -> dx, dweight, dbias
extern const OpDef kBatchNormGrad;

struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);

}  // namespace linnet

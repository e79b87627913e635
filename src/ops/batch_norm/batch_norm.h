// Batch normalization while training (Ioffe & Szegedy 2015): over all axes but the last, which holds the channels.
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//
// x [..., C], weight [C], bias [C] -> y [..., C], mean [C], variance [C]: those of the batch, the variance over the N
// elements of a channel, not N - 1. Nothing flows back through mean and variance: they are for running statistics.
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct BatchNormAttrs {
  double epsilon = 1e-5;
  void fields(FieldVisitor& visit) { visit("epsilon", epsilon); }
};

// x, weight, bias -> y, mean, variance
extern const OpDef kBatchNorm;
// dy, x, weight, mean, variance -> dx, dweight, dbias
extern const OpDef kBatchNormGrad;
KernelList batch_norm_kernels();
KernelList batch_norm_grad_kernels();

struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);

}  // namespace linnet

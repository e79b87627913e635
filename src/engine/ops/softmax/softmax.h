// Softmax over the last axis: y = exp(x - max) / sum(exp(x - max)). A row of only -inf gives zeros.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
extern const OpDef kSoftmax, kSoftmaxGrad;

Tensor softmax(At x);
}  // namespace linnet

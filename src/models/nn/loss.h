// What training minimizes.
#pragma once
#include <functional>
#include "engine/ir/tensor.h"

namespace linnet {
class Trace;

// Two scalars over the samples or tokens of a batch, which add up over micro-batches; the mean is taken later.
struct Loss {
  Tensor sum;    // of the losses of all samples or tokens that count
  Tensor count;  // how many those are
};

// Records the loss of one batch shape in the trace it is given. The engine's own form of TracedLoss.
using LossFunction = std::function<Loss(Trace&)>;
}  // namespace linnet

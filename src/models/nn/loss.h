// What training minimizes.
#pragma once
#include <functional>
#include "engine/ir/tensor.h"

namespace linnet {

class Trace;

// Two scalars over the samples or tokens of a batch. The mean is taken later: sums and counts add up over
// micro-batches.
struct Loss {
  // The sum of the losses of all samples or tokens that count.
  Tensor sum;
  // How many those are.
  Tensor count;
};

// Records the loss of one batch shape in the trace it is given. The engine's own form of TracedLoss.
using LossFunction = std::function<Loss(Trace&)>;

}  // namespace linnet

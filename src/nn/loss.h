// What training minimizes.
#pragma once
#include <functional>

#include "nn/trace.h"

namespace linnet {

// Scalars over the tokens of a batch. The mean is taken later: sums and counts add up over micro-batches.
struct Loss {
  Tensor sum, count;
};

// Records the loss of one batch shape in the trace it is given.
using LossFunction = std::function<Loss(Trace&)>;

}  // namespace linnet

#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {

Tensor linear_cross_entropy_sum(At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets,
                                double label_smoothing) {
  const Tensor logits = matmul(hidden, weight, false, true);
  return cross_entropy_sum(At(bias ? At(logits, hidden.where) + *bias : logits, hidden.where), targets,
                           label_smoothing);
}

}  // namespace linnet

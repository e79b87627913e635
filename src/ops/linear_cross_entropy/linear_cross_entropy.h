// The loss of a classifier over many classes without its logits in memory: a linear layer and the cross-entropy of its
// result (ops/cross_entropy), computed chunk by chunk of rows.
//
//   x = hidden weight^T [+ bias],  loss of a row = lse(x) - (1 - s) * x[target] - s * mean(x)
//
// hidden [..., D], weight [V, D], bias [V], targets i32 [...] -> sum of losses []. A row whose target is negative is
// left out: it costs nothing and its hidden state gets no gradient.
#pragma once
#include <optional>

#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

Tensor linear_cross_entropy_sum(At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets,
                                double label_smoothing = 0);

}  // namespace linnet

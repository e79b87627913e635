// Reverse-mode differentiation as a graph rewrite.
#pragma once
#include <span>
#include <vector>
#include "engine/ir/graph.h"

namespace linnet {
// Appends d(loss)/d(w) for every w in `wrt` as nodes; zeros if the loss does not depend on w. `loss` is a scalar. Each
// gradient node has the module path of its forward node. Throws Error(kShape) if an op on the way has no gradient.
std::vector<Tensor> gradients(Tensor loss, std::span<const Tensor> wrt);
}  // namespace linnet

// Reverse-mode differentiation as a graph rewrite: gradients are ordinary nodes, appended after the forward ones.
#pragma once
#include <span>
#include <vector>
#include "engine/ir/graph.h"

namespace linnet {

// d(loss)/d(w) for every w in `wrt`, as nodes of the same graph; zeros where the loss does not depend on it. `loss` is
// a scalar. Each gradient node carries the module path of the forward node it came from. Throws Error(kShape) when a
// path from a w to the loss leads through an op without a gradient.
std::vector<Tensor> gradients(Tensor loss, std::span<const Tensor> wrt);

}  // namespace linnet

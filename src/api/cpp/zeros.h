// Tensors of zeros, for layers that pad.
#pragma once
#include "engine/ir/graph.h"

namespace linnet {

// Of the element type of `like`.
Tensor zeros(Tensor like, const Shape& shape);

}  // namespace linnet

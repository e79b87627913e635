// Nodes of one scalar function (engine/kernels/pointwise/expression.h), elementwise over tensors and numbers. An
// operand that is given twice is one operand of the node.
#pragma once
#include "engine/ir/tensor.h"
#include "engine/kernels/pointwise/expression.h"

namespace linnet {

Tensor apply_scalar(Scalar function, At x);
Tensor apply_scalar(Scalar function, At a, Tensor b);
Tensor apply_scalar(Scalar function, At a, Tensor b, Tensor c);
Tensor apply_scalar(Scalar function, At a, double b);
Tensor apply_scalar(Scalar function, double a, At b);

}  // namespace linnet

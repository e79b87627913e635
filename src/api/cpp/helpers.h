// What functions on tensors share.
#pragma once
#include <string>

#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"
#include "linnet/tensor_type.h"

namespace linnet {

// The size of an axis; Error(kShape) naming the line and the function when x has none of that number.
int64_t checked_size(const At& x, int axis, const char* function);

// Of the element type of `like`, for layers that pad.
Tensor zeros(Tensor like, const Shape& shape);

// The number of bytes of an array that a program asks for. Throws Error(kUser), beginning with `what`, for a negative size and for more than any memory.
size_t checked_bytes(const std::string& what, const TensorType& type);

}  // namespace linnet

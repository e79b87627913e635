// Checks of axes that functions on tensors share.
#pragma once
#include "engine/ir/tensor.h"

namespace linnet {

// The size of an axis; Error(kShape) naming the line and the function when x has none of that number.
int64_t checked_size(const At& x, int axis, const char* function);

}  // namespace linnet

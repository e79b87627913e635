// The sizes of arrays that programs ask for.
#pragma once
#include <string>

#include "linnet/tensor_type.h"

namespace linnet {

// The number of bytes. Throws Error(kUser), beginning with `what`, for a negative size and for more than any memory.
size_t checked_bytes(const std::string& what, const TensorType& type);

}  // namespace linnet

// The four ways a smaller operand meets a larger one: nothing is implicit beyond them. (The enum is the kernels'.)
#pragma once
#include <optional>

#include "engine/ir/tensor_type.h"
#include "engine/kernels/pointwise/expression.h"

namespace linnet {

// How an operand of shape `small` is repeated to fill `full`:
//   kFull    the same shape
//   kScalar  one element
//   kSuffix  the trailing axes of full, e.g. [D] or [T, D] within [B, T, D] (leading ones allowed)
//   kPrefix  the leading axes of full, then ones, e.g. [B, T, 1] within [B, T, D]
// nullopt when it is none of these.
std::optional<Broadcast> find_broadcast(const Shape& small, const Shape& full);

}  // namespace linnet

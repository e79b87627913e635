// The four ways in which kernels repeat a smaller operand to fill a larger one (the enum is theirs), and the shape that
// operands of any shapes have together, as NumPy broadcasts them. What kernels do not repeat, broadcast_to() does.
#pragma once
#include <optional>
#include <span>
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

// Where `small` is [B, 1, D] beside a full [B, T, D], for any number of axes in the place of each: the elements of D.
// 0: it is not. Elementwise ops of the CPU repeat that, too (fuse_pointwise).
int64_t middle_row(const Shape& small, const Shape& full);

// With axes of size 1 in front, so that it has this rank.
Shape with_rank(const Shape& shape, int rank);

// Axes are matched from the last one on; where sizes differ, one of them is 1. nullopt when the shapes do not fit.
std::optional<Shape> broadcast_shape(std::span<const Shape> shapes);

}  // namespace linnet

// Ways in which kernels repeat a smaller operand, and NumPy's broadcasting. broadcast_to() does what kernels do not.
#pragma once
#include <optional>
#include <span>
#include "engine/ir/tensor_type.h"
#include "engine/kernels/pointwise/expression.h"

namespace linnet {
// How an operand of shape `small` is repeated to fill `full`; nullopt if in none of these ways:
//   kFull    the same shape
//   kScalar  one element
//   kSuffix  the trailing axes of full, e.g. [D] or [T, D] within [B, T, D] (leading ones allowed)
//   kPrefix  the leading axes of full, then ones, e.g. [B, T, 1] within [B, T, D]
//   kMiddle  ones between axes of full, e.g. [B, 1, D] within [B, T, D]
std::optional<Broadcast> find_broadcast(const Shape& small, const Shape& full);

// The elements of D if `small` is [B, 1, D] beside a full [B, T, D], for any number of axes in place of each; else 0.
int64_t middle_row(const Shape& small, const Shape& full);

// Shapes from `small` to `full`, each with one more run of axes repeated; these two alone if they do not fit.
std::vector<Shape> broadcast_steps(const Shape& small, const Shape& full);

// `full` as [outer, rows, width], of which `small` has [outer, width]. The width is 1 where trailing axes are reduced.
struct ReductionSizes {
  int64_t outer, rows, width;
};
ReductionSizes reduction_sizes(const Shape& small, const Shape& full);

// Whether `small` has trailing axes alone, as a bias has: such sums are of floats, in their own order, others of
// doubles.
bool sums_leading_axes(const Shape& small, const Shape& full);

// The strides of `small`, matched from the last axis on, with 0 along axes that are repeated to fill `full`.
Shape repeated_strides(const Shape& small, const Shape& strides, const Shape& full);

Shape with_rank(const Shape& shape, int rank);  // prepends axes of size 1 up to this rank

// Matches axes from the last one on; of different sizes one must be 1. nullopt if the shapes do not fit.
std::optional<Shape> broadcast_shape(std::span<const Shape> shapes);
}  // namespace linnet

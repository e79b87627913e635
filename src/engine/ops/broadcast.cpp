#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
bool is_suffix(const Shape& small, const Shape& full) {
  int skip = 0;
  while (skip < small.rank() && small[skip] == 1) ++skip;
  return small.rank() <= full.rank() &&
         std::ranges::equal(small.sizes().subspan(skip), full.sizes().last(small.rank() - skip));
}

bool is_prefix(const Shape& small, const Shape& full) {
  if (small.rank() != full.rank()) return false;
  int same = 0;
  while (same < full.rank() && small[same] == full[same]) ++same;
  return small.elements(same, small.rank()) == 1;
}
}  // namespace

int64_t middle_row(const Shape& small, const Shape& full) {
  if (small.rank() != full.rank() || small.elements() == 0) return 0;
  int first = 0, last = full.rank();
  while (first < last && small[first] == full[first]) ++first;
  while (last > first && small[last - 1] == full[last - 1]) --last;
  return small.elements(first, last) == 1 ? small.elements(last, small.rank()) : 0;
}

std::vector<Shape> broadcast_steps(const Shape& small, const Shape& full) {
  if (find_broadcast(small, full) || small.rank() != full.rank() || broadcast_shape(std::array{small, full}) != full)
    return {small, full};
  std::vector<Shape> steps{small};
  Shape shape = small;
  for (int axis = 0; axis < full.rank(); ++axis) {
    if (shape[axis] == full[axis]) continue;
    shape.set(axis, full[axis]);
    if (axis + 1 == full.rank() || shape[axis + 1] == full[axis + 1]) steps.push_back(shape);
  }
  return steps;
}

ReductionSizes reduction_sizes(const Shape& small, const Shape& full) {
  const Broadcast kind = *find_broadcast(small, full);
  const int64_t size = small.elements(), rows = size ? full.elements() / size : 0;
  const int64_t width = kind == Broadcast::kSuffix ? size : kind == Broadcast::kMiddle ? middle_row(small, full) : 1;
  return {width ? size / width : 0, rows, width};
}

bool sums_leading_axes(const Shape& small, const Shape& full) {
  return small.rank() < full.rank() && find_broadcast(small, full) == Broadcast::kSuffix;
}

Shape repeated_strides(const Shape& small, const Shape& strides, const Shape& full) {
  Shape result;
  for (int axis = 0; axis < full.rank(); ++axis) {
    const int own = axis - full.rank() + small.rank();
    result.push_back(own >= 0 && small[own] == full[axis] ? strides[own] : 0);
  }
  return result;
}

Shape with_rank(const Shape& shape, int rank) {
  Shape result;
  for (int i = shape.rank(); i < rank; ++i) result.push_back(1);
  for (const int64_t size : shape.sizes()) result.push_back(size);
  return result;
}

std::optional<Shape> broadcast_shape(std::span<const Shape> shapes) {
  const int rank = max_of<int>(shapes, &Shape::rank);
  Shape full = with_rank({}, rank);
  for (const Shape& shape : shapes) {
    const Shape whole = with_rank(shape, rank);
    for (int axis = 0; axis < rank; ++axis) {
      if (whole[axis] == 1) continue;
      if (full[axis] != 1 && full[axis] != whole[axis]) return std::nullopt;
      full.set(axis, whole[axis]);
    }
  }
  return full;
}

std::optional<Broadcast> find_broadcast(const Shape& small, const Shape& full) {
  if (small == full) return Broadcast::kFull;
  if (small.elements() == 1) return Broadcast::kScalar;
  if (is_suffix(small, full)) return Broadcast::kSuffix;
  if (is_prefix(small, full)) return Broadcast::kPrefix;
  if (middle_row(small, full) > 0) return Broadcast::kMiddle;
  return std::nullopt;
}

Tensor broadcast_to(At x, Shape shape) {
  const Shape small = x.value.shape();
  if (small == shape) return x.value;
  const bool is_lower = !find_broadcast(small, shape) && small.rank() < shape.rank();
  At repeated(is_lower ? reshape(x, with_rank(small, shape.rank())) : x.value, x.where);
  const std::vector<Shape> steps = broadcast_steps(repeated.value.shape(), shape);
  for (size_t i = 1; i < steps.size(); ++i)
    repeated.value = op_result(kBroadcast, repeated, {}, BroadcastAttrs{steps[i]});
  return repeated.value;
}
}  // namespace linnet

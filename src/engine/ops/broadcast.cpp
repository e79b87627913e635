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

// Repeats axes [first, last) of one element to their sizes in `shape`.
Tensor repeat_axes(At x, int first, int last, const Shape& shape) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  Shape result = x.value.shape();
  for (int axis = first; axis < last; ++axis) result.set(axis, shape[axis]);
  const int64_t outer = result.elements(0, first), n = result.elements(first, last);
  const int64_t inner = result.elements(last, result.rank());
  if (inner == 1) return reshape(at(broadcast_to(at(reshape(x, {outer, 1})), {outer, n})), result);
  if (outer == 1) return reshape(at(broadcast_to(at(reshape(x, {inner})), {n, inner})), result);
  constexpr int64_t kFew = 8;
  if (n <= kFew) {
    const std::vector<Tensor> rows(n, reshape(x, {outer, 1, inner}));
    return reshape(at(concat(rows, 1, x.where)), result);
  }
  const Tensor copies = broadcast_to(at(reshape(x, {outer, inner, 1})), {outer, inner, n});
  return reshape(at(permute(at(copies), {0, 2, 1})), result);
}
}  // namespace

int64_t middle_row(const Shape& small, const Shape& full) {
  if (small.rank() != full.rank() || small.elements() == 0) return 0;
  int first = 0, last = full.rank();
  while (first < last && small[first] == full[first]) ++first;
  while (last > first && small[last - 1] == full[last - 1]) --last;
  return small.elements(first, last) == 1 ? small.elements(last, small.rank()) : 0;
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
  return std::nullopt;
}

Tensor broadcast_to(At x, Shape shape) {
  const Shape small = x.value.shape();
  if (small == shape) return x.value;
  if (const auto full = broadcast_shape(std::array{small, shape});
      full && *full == shape && !find_broadcast(small, shape)) {
    At repeated(reshape(x, with_rank(small, shape.rank())), x.where);
    const auto differs = [&](int axis) { return axis < shape.rank() && repeated.value.dim(axis) != shape[axis]; };
    for (int axis = 0; axis < shape.rank(); ++axis) {
      int last = axis;
      while (differs(last)) ++last;
      if (last > axis) repeated.value = repeat_axes(repeated, axis, last, shape);
    }
    return repeated.value;
  }
  return op_result(kBroadcast, x, {}, BroadcastAttrs{shape});
}
}  // namespace linnet

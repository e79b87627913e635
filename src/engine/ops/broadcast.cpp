#include "engine/ops/broadcast.h"
#include <algorithm>

namespace linnet {
namespace {
bool is_suffix(const Shape& small, const Shape& full) {
  int skip = 0;
  while (skip < small.rank() && small[skip] == 1) ++skip;
  const int kept = small.rank() - skip;
  if (small.rank() > full.rank()) return false;
  for (int axis = 1; axis <= kept; ++axis)
    if (small[-axis] != full[-axis]) return false;
  return true;
}

bool is_prefix(const Shape& small, const Shape& full) {
  if (small.rank() != full.rank()) return false;
  int axis = 0;
  while (axis < full.rank() && small[axis] == full[axis]) ++axis;
  for (; axis < full.rank(); ++axis)
    if (small[axis] != 1) return false;
  return true;
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
  int rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.rank());
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
}  // namespace linnet

#include "engine/ops/broadcast.h"

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

std::optional<Broadcast> find_broadcast(const Shape& small, const Shape& full) {
  if (small == full) return Broadcast::kFull;
  if (small.elements() == 1) return Broadcast::kScalar;
  if (is_suffix(small, full)) return Broadcast::kSuffix;
  if (is_prefix(small, full)) return Broadcast::kPrefix;
  return std::nullopt;
}

}  // namespace linnet

#include "engine/ir/attrs.h"

namespace linnet {

bool Attrs::operator==(const Attrs& other) const {
  if (held_ == other.held_) return true;
  return held_ && other.held_ && held_->type() == other.held_->type() && bytes() == other.bytes();
}

}  // namespace linnet

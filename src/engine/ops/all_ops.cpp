// Ops that programs define are not here, but in ops/own.
#include <vector>

#include "engine/ops/op_lists.h"

namespace linnet {

std::span<const OpEntry> all_ops() {
  static const std::vector<OpEntry> ops = [] {
    std::vector<OpEntry> list;
    for (const auto& part : {inference_ops(), image_ops(), training_ops()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return ops;
}

}  // namespace linnet

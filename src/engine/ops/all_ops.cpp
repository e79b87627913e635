// Ops that programs define are not here, but in ops/own.
#include <vector>

#include "engine/ops/op_table.h"

namespace linnet {

LINNET_IMAGE_OPS(LINNET_OP_KERNELS)
LINNET_TRAINING_OPS(LINNET_OP_KERNELS)

std::span<const OpEntry> all_ops() {
  static const std::vector<OpEntry> ops = [] {
    std::vector<OpEntry> list{LINNET_IMAGE_OPS(LINNET_OP_ENTRY) LINNET_TRAINING_OPS(LINNET_OP_ENTRY)};
    list.insert(list.begin(), inference_ops().begin(), inference_ops().end());
    return list;
  }();
  return ops;
}

}  // namespace linnet

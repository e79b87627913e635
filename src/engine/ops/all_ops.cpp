// Ops that programs define are in ops/own instead.
#include <array>
#include "engine/ops/op_table.h"

namespace linnet {
LINNET_OPS(LINNET_OP_KERNELS)

std::span<const OpEntry> all_ops() {
  static const std::array ops{LINNET_OPS(LINNET_OP_ENTRY)};
  return ops;
}
}  // namespace linnet

#include <array>

#include "engine/ops/op_table.h"

namespace linnet {

LINNET_INFERENCE_OPS(LINNET_OP_KERNELS)

std::span<const OpEntry> inference_ops() {
  static const std::array ops{LINNET_INFERENCE_OPS(LINNET_OP_ENTRY)};
  return ops;
}

}  // namespace linnet

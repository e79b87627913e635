#include "formats/onnx/lowering.h"
#include "engine/ops/argmax/argmax.h"

namespace linnet {

void argmax_to_onnx(OnnxLowering& to) {
  to.set(0, to.builder.add("ArgMax", {to.in(0)}, {int_attribute("axis", -1), int_attribute("keepdims", 0)}));
}

}  // namespace linnet

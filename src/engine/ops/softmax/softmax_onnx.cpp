#include "formats/onnx/lowering.h"
#include "engine/ops/softmax/softmax.h"

namespace linnet {

void softmax_to_onnx(OnnxLowering& to) {
  to.set(0, to.builder.add("Softmax", {to.in(0)}, {int_attribute("axis", -1)}));
}

}  // namespace linnet

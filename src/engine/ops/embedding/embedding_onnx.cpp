#include "formats/onnx/lowering.h"
#include "engine/ops/embedding/embedding.h"

namespace linnet {

void embedding_to_onnx(OnnxLowering& to) {
  to.set(0, to.builder.add("Gather", {to.in(0), to.in(1)}, {int_attribute("axis", 0)}));
}

}  // namespace linnet

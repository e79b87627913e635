#include "formats/onnx/lowering.h"
#include "engine/ops/max_pool/max_pool.h"

namespace linnet {

void max_pool_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<MaxPoolAttrs>();
  if (to.is_used(1)) to.fail("the places of its results are read");
  const std::string y = to.builder.add("MaxPool", {to.builder.transpose(to.in(0), {0, 3, 1, 2})},
                                       {ints_attribute("kernel_shape", {attrs.size, attrs.size}),
                                        ints_attribute("strides", {attrs.stride, attrs.stride})});
  to.set(0, to.builder.transpose(y, {0, 2, 3, 1}));
}

}  // namespace linnet

#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/pixels/pixels_onnx.h"

namespace linnet {

void conv_relu_pool_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<ConvReluPoolAttrs>();
  if (to.is_used(1)) to.fail("the places of its results are read");
  OnnxBuilder& b = to.builder;
  const std::string x = attrs.scaling.scale.empty() ? to.in(0) : scaled_pixels_in_onnx(to, to.in(0), attrs.scaling);
  const std::string y = b.add("Conv", {b.transpose(x, {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2}), to.in(2)},
                              {ints_attribute("strides", {1, 1}), ints_attribute("pads", {1, 1, 1, 1})});
  const std::string pooled = b.add("MaxPool", {b.add("Relu", {y})},
                                   {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})});
  to.set(0, b.transpose(pooled, {0, 2, 3, 1}));
}

}  // namespace linnet

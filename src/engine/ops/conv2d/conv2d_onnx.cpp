// ONNX has channels before rows and columns, here they come last.
#include "formats/onnx/lowering.h"
#include "engine/ops/conv2d/conv2d.h"

namespace linnet {

void conv2d_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<Conv2dAttrs>();
  OnnxBuilder& b = to.builder;
  const std::string y =
      b.add("Conv", {b.transpose(to.in(0), {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2})},
            {ints_attribute("strides", {attrs.stride, attrs.stride}),
             ints_attribute("dilations", {attrs.dilation, attrs.dilation}), int_attribute("group", attrs.groups),
             ints_attribute("pads", {attrs.padding, attrs.padding, attrs.padding, attrs.padding})});
  to.set(0, b.transpose(y, {0, 2, 3, 1}));
}

}  // namespace linnet

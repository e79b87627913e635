#include "engine/ops/pixels/pixels_onnx.h"

namespace linnet {

std::string scaled_pixels_in_onnx(OnnxLowering& to, const std::string& bytes, const PixelScaling& scaling) {
  const std::vector<int64_t> channels{static_cast<int64_t>(scaling.scale.size())};
  OnnxBuilder& b = to.builder;
  const std::string scaled =
      b.add("Mul", {b.cast(bytes, OnnxElement::kFloat), b.tensor(float_tensor(channels, scaling.scale))});
  return b.add("Add", {scaled, b.tensor(float_tensor(channels, scaling.shift))});
}

void scale_pixels_to_onnx(OnnxLowering& to) {
  to.set(0, scaled_pixels_in_onnx(to, to.in(0), to.node().attrs.as<ScalePixelsAttrs>().scaling));
}

}  // namespace linnet

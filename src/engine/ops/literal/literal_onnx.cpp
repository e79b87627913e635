#include "formats/onnx/lowering.h"
#include "engine/ops/literal/literal.h"

namespace linnet {

void literal_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<LiteralAttrs>();
  const auto sizes = attrs.type.shape.sizes();
  const std::vector<int64_t> dims(sizes.begin(), sizes.end());
  const auto count = static_cast<size_t>(attrs.type.shape.elements());
  if (attrs.type.dtype == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(attrs.words.data());
    return to.set(0, to.builder.tensor(float_tensor(dims, {values, values + count})));
  }
  if (attrs.type.dtype != DType::kI32) to.fail("it holds other numbers than float32 and int32");
  const auto* values = reinterpret_cast<const int32_t*>(attrs.words.data());
  to.set(0, to.builder.tensor(int64_tensor(dims, {values, values + count})));
}

}  // namespace linnet

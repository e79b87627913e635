// LayerNormalization from opset 17 on. Before, and for root-mean-square norms, the nodes that ONNX Runtime joins.
#include "formats/onnx/lowering.h"
#include "engine/ops/layer_norm/layer_norm.h"

namespace linnet {
namespace {

std::string normalized(OnnxLowering& to, const LayerNormAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string x = to.in(0);
  if (attrs.centered) x = b.add("Sub", {x, b.reduce("ReduceMean", x, {-1})});
  const std::string variance = b.reduce("ReduceMean", b.add("Pow", {x, b.number(2)}), {-1});
  return b.add("Div", {x, b.add("Sqrt", {b.add("Add", {variance, b.number(attrs.epsilon)})})});
}

}  // namespace

void layer_norm_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<LayerNormAttrs>();
  if (to.is_used(1) || to.is_used(2)) to.fail("its mean or deviation is read");
  OnnxBuilder& b = to.builder;
  if (b.opset() >= 17 && attrs.centered && attrs.has_weight) {
    std::vector<std::string> in{to.in(0), to.in(1)};
    if (attrs.has_bias) in.push_back(to.in(2));
    return to.set(0, b.add("LayerNormalization", in,
                           {int_attribute("axis", -1), float_attribute("epsilon", static_cast<float>(attrs.epsilon))}));
  }
  std::string y = normalized(to, attrs);
  if (attrs.has_weight) y = b.add("Mul", {y, to.in(1)});
  if (attrs.has_bias) y = b.add("Add", {y, to.in(to.operands() - 1)});
  to.set(0, y);
}

}  // namespace linnet

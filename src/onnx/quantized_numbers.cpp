#include "onnx/quantized_numbers.h"

#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "onnx/compose.h"

namespace linnet {

using compose::elementwise;
using compose::Number;

QuantizedRange quantized_range(const OnnxCall& call, OnnxElement element) {
  switch (element) {
    case OnnxElement::kUint8:
      return {0, 255};
    case OnnxElement::kInt8:
      return {-128, 127};
    case OnnxElement::kUint16:
      return {0, 65535};
    case OnnxElement::kInt16:
      return {-32768, 32767};
    case OnnxElement::kInt32:
      return {-2147483648.0, 2147483647.0};
    default:
      call.fail("numbers of the type " + element_name(element));
  }
}

Tensor along_axis(const OnnxCall& call, Tensor values, const Shape& x, int axis, int64_t block) {
  if (values.shape().elements() == 1) return reshape(values, {});
  if (values.shape().rank() == 1 && x.rank() != 1) {
    if (values.dim(0) != x[axis]) call.fail("scales of shape " + values.shape().text() + " for " + x.text());
    Shape shape;
    for (int i = 0; i < x.rank(); ++i) shape.push_back(i == axis ? x[axis] : 1);
    return reshape(values, shape);
  }
  if (block <= 0) return values;
  // Each number stands for `block` elements of the axis; the last block may be shorter.
  std::vector<int64_t> from;
  for (int64_t i = 0; i < x[axis]; ++i) from.push_back(i / block);
  return compose::take(values, axis, from);
}

Scaling scaling_of(OnnxCall& call, size_t scale, size_t zero, const Shape& x, int axis, int64_t block) {
  Scaling scaling{along_axis(call, call.tensor(scale, DType::kF32), x, axis, block), {}};
  if (call.has(zero)) scaling.zero = along_axis(call, call.tensor(zero, DType::kF32), x, axis, block);
  return scaling;
}

Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s) {
  if (!s.zero.defined()) return elementwise(call, {x, s.scale}, [](Number x, Number scale) { return x * scale; });
  return elementwise(call, {x, s.scale, s.zero},
                     [](Number x, Number scale, Number zero) { return (x - zero) * scale; });
}

Tensor quantized(const OnnxCall& call, Tensor x, const Scaling& s, QuantizedRange range) {
  const auto limited = [range](Number whole) { return min(max(whole, range.least), range.most); };
  if (!s.zero.defined())
    return elementwise(call, {x, s.scale}, [&](Number x, Number scale) { return limited(round(x / scale)); });
  return elementwise(call, {x, s.scale, s.zero},
                     [&](Number x, Number scale, Number zero) { return limited(round(x / scale) + zero); });
}

int quantized_axis(const OnnxCall& call, const Shape& x) {
  const int64_t axis = call.integer("axis", 1);
  return x.rank() > 1 ? call.axis(axis, x.rank()) : 0;
}

std::optional<TracedQuantization> quantization_of(const OnnxCall& call, size_t scale, size_t zero,
                                                  OnnxElement element) {
  const Shape x = call.shape();
  if (!call.is_known(scale) || (call.has(zero) && !call.is_known(zero)) || call.shape(scale).rank() > 1 ||
      call.integer("block_size", 0) > 0)
    return std::nullopt;
  TracedQuantization known{
      .element = element, .scales = call.numbers(scale), .zeros = {0}, .axis = quantized_axis(call, x)};
  if (call.has(zero)) known.zeros = call.numbers(zero);
  return known;
}

Tensor whole_product(OnnxCall& call, Tensor a, Tensor b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) call.fail("of a vector");
  if (b.shape().rank() > 2 && a.shape().rank() != b.shape().rank()) call.fail("operands of other numbers of axes");
  return matmul(a, b);
}

Tensor conv_of(OnnxCall& call, TracedValue x, TracedValue w) {
  OnnxNode node = call.node();
  node.op = "Conv", node.in = {"x", "w"}, node.out = {"y"};
  OnnxCall conv(node, call.opset(), call.graph(), {std::move(x), std::move(w)});
  (*find_onnx_operator("Conv"))(conv);
  conv.check_attributes();
  for (const OnnxAttribute& attribute : node.attributes) call.has_attribute(attribute.name.c_str());
  return conv.out()[0].tensor;
}

}  // namespace linnet

// Products of matrices and convolutions, whose channels are last here and first in ONNX.
#include <numeric>
#include "engine/ir/op.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pool/pool.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
std::string operand(OnnxLowering& to, size_t index, bool transposed) {
  if (!transposed) return to.in(index);
  std::vector<int64_t> order(to.in_type(index).shape.rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return to.arranged(index, order);
}

std::string scaled_pixels(OnnxLowering& to, const std::string& bytes, const PixelScaling& scaling) {
  const std::vector<int64_t> channels{static_cast<int64_t>(scaling.scale.size())};
  OnnxBuilder& b = to.builder;
  const std::string scaled =
      b.add("Mul", {b.cast(bytes, OnnxElement::kFloat), b.tensor(float_tensor(channels, scaling.scale))});
  return b.add("Add", {scaled, b.tensor(float_tensor(channels, scaling.shift))});
}
}  // namespace

const Node* linear_product(const OnnxLowering& to, ValueId value) {
  const Node* node = to.producer(value);
  if (!is(node, kMatmul) || !to.is_parameter(node->in[1])) return nullptr;
  const auto& attrs = node->attrs.as<MatmulAttrs>();
  return attrs.trans_b && !attrs.trans_a && to.graph().value(node->in[1]).type.shape.rank() == 2 ? node : nullptr;
}

// Gemm takes matrices alone, so leading axes are joined before it and split after it.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result) {
  OnnxBuilder& b = to.builder;
  const std::string rows =
      b.add("Reshape", {to.name_of(product.in[0]), b.ints({-1, to.shape_of(product.in[1])[1].constant})});
  const std::string y = b.add("Gemm", {rows, to.arranged_value(product.in[1], {1, 0}), to.name_of(bias)});
  return b.add("Reshape", {y, b.shape(result)});
}

void lower_matmul(OnnxLowering& to) {
  const auto& attrs = to.attrs<MatmulAttrs>();
  if (to.operands() != 2) to.fail("it was joined with other ops");
  to.add("MatMul", {operand(to, 0, attrs.trans_a), operand(to, 1, attrs.trans_b)});
}

void lower_conv2d(OnnxLowering& to) {
  const auto& attrs = to.attrs<Conv2dAttrs>();
  OnnxBuilder& b = to.builder;
  const std::string y = b.add("Conv", {b.transpose(to.in(0), {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2})},
      {ints_attribute("strides", {attrs.stride, attrs.stride}),
          ints_attribute("dilations", {attrs.dilation, attrs.dilation}), int_attribute("group", attrs.groups),
          ints_attribute("pads", {attrs.padding, attrs.padding, attrs.padding, attrs.padding})});
  to.set(0, b.transpose(y, {0, 2, 3, 1}));
}

void lower_conv_relu_pool(OnnxLowering& to) {
  const auto& attrs = to.attrs<ConvReluPoolAttrs>();
  if (to.is_used(1)) to.fail("the places of its results are read");
  OnnxBuilder& b = to.builder;
  const std::string x = attrs.scaling.scale.empty() ? to.in(0) : scaled_pixels(to, to.in(0), attrs.scaling);
  const std::string y = b.add("Conv", {b.transpose(x, {0, 3, 1, 2}), to.arranged(1, {0, 3, 1, 2}), to.in(2)},
      {ints_attribute("strides", {1, 1}), ints_attribute("pads", {1, 1, 1, 1})});
  const std::string pooled = b.add(
      "MaxPool", {b.add("Relu", {y})}, {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})});
  to.set(0, b.transpose(pooled, {0, 2, 3, 1}));
}

void lower_scale_pixels(OnnxLowering& to) {
  to.set(0, scaled_pixels(to, to.in(0), to.attrs<ScalePixelsAttrs>().scaling));
}

void lower_max_pool(OnnxLowering& to) {
  const auto& attrs = to.attrs<MaxPoolAttrs>();
  if (to.is_used(1)) to.fail("the places of its results are read");
  const std::string y = to.builder.add("MaxPool", {to.builder.transpose(to.in(0), {0, 3, 1, 2})},
      {ints_attribute("kernel_shape", {attrs.size, attrs.size}),
          ints_attribute("strides", {attrs.stride, attrs.stride})});
  to.set(0, to.builder.transpose(y, {0, 2, 3, 1}));
}
}  // namespace linnet

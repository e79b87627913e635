// Elementwise expressions: an ONNX node per instruction, with numpy's broadcasting.
#include "engine/ops/pointwise/pointwise.h"
#include <numbers>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
std::string lower(OnnxBuilder& builder, Scalar function, const std::vector<std::string>& in) {
  for (const OnnxFunctionRow& row : kOnnxFunctions)
    if (row.function == function) return builder.add(row.name, in);
  if (function == Scalar::kSquare) return builder.add("Mul", {in[0], in[0]});
  if (function == Scalar::kRsqrt) return builder.add("Reciprocal", {builder.add("Sqrt", in)});
  if (function == Scalar::kGreater) return builder.cast(builder.add("Greater", in), OnnxElement::kFloat);
  if (function == Scalar::kEqual) return builder.cast(builder.add("Equal", in), OnnxElement::kFloat);
  if (function == Scalar::kSelect) return builder.add("Where", {builder.cast(in[0], OnnxElement::kBool), in[1], in[2]});
  fail_internal("ONNX: no operator for ", scalar_name(function));
}

// x * (1 + erf(x / sqrt(2))) / 2 in the nodes that runtimes recognize as Gelu.
std::string gelu_in_onnx(OnnxBuilder& b, const std::string& x) {
  const std::string erf = b.add("Erf", {b.add("Div", {x, b.number(std::numbers::sqrt2)})});
  return b.add("Mul", {b.add("Mul", {x, b.add("Add", {erf, b.number(1)})}), b.number(0.5)});
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), likewise.
std::string gelu_tanh_in_onnx(OnnxBuilder& b, const std::string& x) {
  const std::string cube = b.add("Mul", {b.add("Pow", {x, b.number(3)}), b.number(0.044715)});
  const std::string inner =
      b.add("Mul", {b.add("Add", {x, cube}), b.number(std::numbers::sqrt2 * std::numbers::inv_sqrtpi)});
  return b.add("Mul", {b.add("Mul", {x, b.number(0.5)}), b.add("Add", {b.add("Tanh", {inner}), b.number(1)})});
}

// Whether the node adds a bias to the projection after attention.
bool ends_attention(OnnxLowering& to) {
  const Node& node = to.node();
  if (node.op->algebra(node) != Algebra::kAdd || to.in_type(1).shape.rank() != 1) return false;
  const Node* product = linear_product(to, node.in[0]);
  const Node* before = product ? to.producer(product->in[0]) : nullptr;
  return before && before->op->product == ProductKind::kAttention;
}
}  // namespace

void lower_pointwise(OnnxLowering& to) {
  const Expression& expression = to.attrs<PointwiseAttrs>().expression;
  if (expression == gelu_expression()) return to.set(0, gelu_in_onnx(to.builder, to.in(0)));
  if (expression == gelu_tanh_expression()) return to.set(0, gelu_tanh_in_onnx(to.builder, to.in(0)));
  if (to.form.causal_mask_size > 0 && ends_attention(to))
    return to.set(0, linear_as_gemm(to, *to.producer(to.node().in[0]), to.node().in[1], to.out_shape(0)));
  std::vector<std::string> values;
  for (const Instruction& in : expression.code) {
    if (in.function == Scalar::kInput) {
      values.push_back(to.in(in.a));
    } else if (in.function == Scalar::kConstant) {
      values.push_back(to.builder.number(in.constant));
    } else {
      std::vector<std::string> operands;
      for (const int16_t operand : {in.a, in.b, in.c})
        if (operand >= 0) operands.push_back(values[operand]);
      values.push_back(lower(to.builder, in.function, operands));
    }
  }
  to.set(0, values.back());
}
}  // namespace linnet

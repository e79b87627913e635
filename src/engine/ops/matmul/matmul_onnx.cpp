#include "engine/ops/matmul/matmul_onnx.h"

#include <numeric>

#include "formats/onnx/lowering.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {

std::string operand(OnnxLowering& to, size_t index, bool transposed) {
  if (!transposed) return to.in(index);
  std::vector<int64_t> order(static_cast<size_t>(to.in_type(index).shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return to.arranged(index, order);
}

}  // namespace

void matmul_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<MatmulAttrs>();
  if (to.operands() != 2) to.fail("it was joined with other ops");
  to.set(0, to.builder.add("MatMul", {operand(to, 0, attrs.trans_a), operand(to, 1, attrs.trans_b)}));
}

const Node* linear_product(const OnnxLowering& to, ValueId value) {
  const Node* node = to.producer(value);
  if (!node || node->op != &kMatmul || !to.is_parameter(node->in[1])) return nullptr;
  const auto& attrs = node->attrs.as<MatmulAttrs>();
  return attrs.trans_b && !attrs.trans_a && to.graph().value(node->in[1]).type.shape.rank() == 2 ? node : nullptr;
}

// MatMul is for tensors of any number of axes, Gemm for matrices alone: rows are joined before it and parted after it.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result) {
  OnnxBuilder& b = to.builder;
  const std::string rows =
      b.add("Reshape", {to.name_of(product.in[0]), b.ints({-1, to.shape_of(product.in[1])[1].constant})});
  const std::string y = b.add("Gemm", {rows, to.arranged_value(product.in[1], {1, 0}), to.name_of(bias)});
  return b.add("Reshape", {y, b.shape(result)});
}

}  // namespace linnet

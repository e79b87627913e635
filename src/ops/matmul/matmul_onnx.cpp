#include <numeric>

#include "io/onnx/lowering.h"
#include "ops/matmul/matmul.h"

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

}  // namespace linnet

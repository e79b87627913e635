// What follows a batch norm in training moves into it: the addition of a residual and ReLU. The result is then written
// once instead of being read and written again.
//
//   forward    batch_norm [-> add] -> relu       batch_norm+residual+relu
//   backward   relu's gradient -> batch_norm_grad   batch_norm_grad+relu, where there is no residual
//
// The gradient computes again which elements were above zero, from what the norm was given. With a residual, ReLU's
// gradient is the residual's as well, and stays a node. In fp32 the bits stay the same; in bf16 the sum before the ReLU
// is not rounded. Where a block is computed again, its second computation is fused like its first.
#include <algorithm>
#include <vector>
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

// Keeps the operands that an expression reads, numbered in the order in which it reads them, as its node has them.
// Returns the old number of each.
std::vector<int16_t> renumber(Expression& expression) {
  std::vector<int16_t> kept;
  for (Instruction& instruction : expression.code) {
    if (instruction.function != Scalar::kInput) continue;
    const auto index = std::ranges::find(kept, instruction.a) - kept.begin();
    if (index == std::ssize(kept)) kept.push_back(instruction.a);
    instruction.a = static_cast<int16_t>(index);
  }
  return kept;
}

class FuseBatchNorm : Fusion {
 public:
  FuseBatchNorm(const Graph& graph, const Backend& backend) : Fusion(graph, backend) {
    Graph traced;
    relu(traced.input("x", {DType::kF32, {2}}));
    relu_ = traced.node(0).attrs.as<PointwiseAttrs>().expression;
    relu_gradient_ = derivative(relu_, 0, 1);
    const std::vector<int16_t> operands = renumber(relu_gradient_);  // 1: the result of ReLU, 2: its gradient
    is_pair_ = operands.size() == 2;
    gradient_operand_ = is_pair_ && operands[0] == 2 ? 0 : 1;
  }

  Graph run() {
    return replace_nodes([this](const Node& node) {
      return (is(node, kBatchNorm) && fuse_forward(node)) || (is(node, kBatchNormGrad) && fuse_backward(node));
    });
  }

 private:
  bool is_relu(const Node* node) const {
    return is(node, kPointwise) && without_rounding(node->attrs.as<PointwiseAttrs>().expression) == relu_;
  }

  bool fuse_forward(const Node& norm) {
    const Node* reader = matcher_.one_reader(norm.out[0]);
    const Node* sum = reader && matcher_.is_sum(*reader) ? reader : nullptr;
    std::vector<Tensor> in = rewriter_.inputs_of(norm);
    if (sum) {
      in.push_back(rewriter_[other_operand(*sum, norm.out[0])]);
      if (!in.back().defined()) return false;  // it is computed after the norm
      reader = matcher_.one_reader(sum->out[0]);
    }
    if (!is_relu(reader)) return false;
    BatchNormAttrs attrs = norm.attrs.as<BatchNormAttrs>();
    attrs.residual = sum != nullptr, attrs.relu = true;
    if (!has_kernel(norm, kBatchNorm, attrs, in)) return false;
    const Tensor result = rewriter_.replace(norm, kBatchNorm, in, attrs)[0];
    if (sum) rewriter_.map(sum->out[0], result);
    rewriter_.map(reader->out[0], result);
    return true;
  }

  bool fuse_backward(const Node& gradient) {
    const Node* gate = matcher_.producer(gradient.in[0]);
    if (!is_pair_ || !is(gate, kPointwise) || !matcher_.has_one_reader(gradient.in[0]) ||
        gate->attrs.as<PointwiseAttrs>().expression != relu_gradient_)
      return false;
    const Node* activation = matcher_.producer(gate->in[1 - gradient_operand_]);
    if (!is_relu(activation)) return false;
    const Node* norm = matcher_.producer(activation->in[0]);
    if (!is(norm, kBatchNorm) || norm->out[0] != activation->in[0] || norm->in[0] != gradient.in[1] ||
        norm->in[1] != gradient.in[2] || norm->out[1] != gradient.in[3] || norm->out[2] != gradient.in[4])
      return false;
    BatchNormAttrs attrs = gradient.attrs.as<BatchNormAttrs>();
    attrs.relu = true;
    std::vector<Tensor> in = rewriter_.inputs_of(gradient);
    in[0] = rewriter_[gate->in[gradient_operand_]];
    in.push_back(rewriter_[norm->in[2]]);
    if (!has_kernel(gradient, kBatchNormGrad, attrs, in)) return false;
    rewriter_.replace(gradient, kBatchNormGrad, in, attrs);
    return true;
  }

  Expression relu_, relu_gradient_;
  bool is_pair_ = false;         // whether ReLU's gradient reads its result and the gradient of that
  size_t gradient_operand_ = 0;  // which of the two is the gradient
};

}  // namespace

Graph fuse_batch_norm(const Graph& graph, const Backend& backend) { return FuseBatchNorm(graph, backend).run(); }

}  // namespace linnet

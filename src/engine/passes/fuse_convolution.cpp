// What follows a convolution moves into it: a factor and a summand for each filter (a bias, or batch normalization with
// the statistics it has learned), the addition of a tensor of the result's shape, and ReLU. The result then is written
// once instead of being read and written again. The bits stay the same: the kernels round after each operation.
#include <array>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

// The expression that the op itself makes of a function.
template <class Function>
Expression traced(const Function& function) {
  Graph graph;
  const TensorType type{DType::kF32, {2}};
  const Tensor x = graph.input("x", type), y = graph.input("y", type);
  function(x, y);
  return graph.node(0).attrs.as<PointwiseAttrs>().expression;
}

class Convolutions {
 public:
  Convolutions(const Graph& graph, const Backend& backend) : rewriter_(graph), backend_(backend) {}

  Graph run() {
    // The convolution moves to where that stands which it takes in: by then the other operand has been computed.
    for (const Node& node : rewriter_.old().nodes())
      if (!take(node)) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  bool take(const Node& node) {
    if (!is(node, kPointwise)) return false;
    if (algebra_of(node) == Algebra::kAdd) return take_sum(node, 0) || take_sum(node, 1);
    const Expression& expression = node.attrs.as<PointwiseAttrs>().expression;
    if (node.in.size() == 2 && expression == product_) return take_scale(node, 0) || take_scale(node, 1);
    return node.in.size() == 1 && expression == relu_ && take_relu(node);
  }

  const Node* lone_convolution(ValueId old) const {
    const Node* producer = rewriter_.lone_producer(old);
    return is(producer, kConv2d) ? producer : nullptr;
  }

  // Whether operand `row` of the node is one number for each filter.
  bool is_row(const Node& node, size_t row) const {
    const Graph& old = rewriter_.old();
    return old.value(node.in[row]).type.shape == Shape{old.value(node.in[1 - row]).type.shape[-1]};
  }

  bool take_scale(const Node& node, size_t which) {
    const Node* convolution = lone_convolution(node.in[which]);
    if (!convolution || convolution->attrs.as<Conv2dAttrs>().is_fused() || !is_row(node, 1 - which)) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    attrs.scale = true;
    return replace(node, *convolution, attrs, rewriter_[node.in[1 - which]]);
  }

  bool take_sum(const Node& node, size_t which) {
    const Node* convolution = lone_convolution(node.in[which]);
    if (!convolution) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    if (attrs.residual || attrs.relu) return false;
    const Graph& old = rewriter_.old();
    if (is_row(node, 1 - which) && !attrs.bias)
      attrs.bias = true;
    else if (node.in[0] != node.in[1] && old.value(node.in[0]).type == old.value(node.in[1]).type)
      attrs.residual = true;
    else
      return false;
    return replace(node, *convolution, attrs, rewriter_[node.in[1 - which]]);
  }

  bool take_relu(const Node& node) {
    const Node* convolution = lone_convolution(node.in[0]);
    if (!convolution || convolution->attrs.as<Conv2dAttrs>().relu) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    attrs.relu = true;
    return replace(node, *convolution, attrs, {});
  }

  // Operands come in the order in which they are taken in: factor, summand, residual.
  bool replace(const Node& node, const Node& convolution, const Conv2dAttrs& attrs, Tensor operand) {
    std::vector<Tensor> in = rewriter_.operands(convolution);
    if (operand.defined()) in.push_back(operand);
    const Node location = convolution;  // adding a node moves the others
    if (!has_kernel(location, attrs, in, rewriter_.old().value(node.out[0]).type)) return false;
    rewriter_.map(node.out[0], rewriter_.add(location, kConv2d, in, attrs)[0]);
    return true;
  }

  bool has_kernel(Node fused, const Conv2dAttrs& attrs, const std::vector<Tensor>& operands,
                  const TensorType& result) const {
    fused.attrs = attrs;
    std::vector<TensorType> in;
    for (const Tensor& operand : operands) in.push_back(operand.type());
    return has_fast_kernel(fused, in, std::span(&result, 1), backend_);
  }

  Rewriter rewriter_;
  const Backend& backend_;
  const Expression product_ = traced([](Tensor x, Tensor y) { return x * y; });
  const Expression relu_ = traced([](Tensor x, Tensor) { return relu(x); });
};

}  // namespace

Graph fuse_convolution(const Graph& graph, const Backend& backend) { return Convolutions(graph, backend).run(); }

}  // namespace linnet

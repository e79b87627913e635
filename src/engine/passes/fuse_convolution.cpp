// Fuses into a convolution what follows it: a factor and a summand per filter (a bias, or batch normalization with
// learned statistics), the addition of a tensor of the result's shape, and an activation function. The result is then
// written once. The bits stay, as the kernels round after each operation.
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
template <class Function> Expression traced(const Function& function) {
  Graph graph;
  const TensorType type{DType::kF32, {2}};
  const Tensor x = graph.input("x", type), y = graph.input("y", type);
  function(x, y);
  return graph.node(0).attrs.as<PointwiseAttrs>().expression;
}

using Code = std::vector<Instruction>;

// Whether instruction i of one expression and j of another, of one operand, compute one function, whatever the order of
// their instructions. Constants are compared as floats, as kernels have them.
bool compute_same(const Code& a, int i, const Code& b, int j) {
  if (i < 0 || j < 0) return i == j;
  const Instruction &x = a[i], &y = b[j];
  if (x.function != y.function) return false;
  if (x.function == Scalar::kInput) return x.a == y.a;
  if (x.function == Scalar::kConstant) return static_cast<float>(x.constant) == static_cast<float>(y.constant);
  const auto same = [&](int k, int l) { return compute_same(a, k, b, l); };
  if (same(x.a, y.a) && same(x.b, y.b) && same(x.c, y.c)) return true;
  const bool commutes = x.function == Scalar::kAdd || x.function == Scalar::kMul || x.function == Scalar::kMax ||
                        x.function == Scalar::kMin;
  return commutes && same(x.a, y.b) && same(x.b, y.a);
}

bool are_same(const Code& a, const Code& b) {
  return compute_same(a, static_cast<int>(a.size()) - 1, b, static_cast<int>(b.size()) - 1);
}

// The convolution moves to the last node fused into it, where the other operand has been computed.
class Convolutions final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kPointwise)) return false;
    if (algebra_of(node) == Algebra::kAdd) return take_sum(node, 0) || take_sum(node, 1);
    const Expression& expression = node.attrs.as<PointwiseAttrs>().expression;
    if (node.in.size() == 2 && expression == product_)
      return take_scale(node, 0) || take_scale(node, 1) || take_silu(node, 0) || take_silu(node, 1);
    if (node.in.size() != 1) return false;
    for (const TracedActivation& activation : traced_activations())
      if (are_same(expression.code, activation.value.code))
        return activate(node, rewriter_.lone_producer(node.in[0], kConv2d), activation.kind);
    return false;
  }

  // Whether operand `row` of the node has one number per filter.
  bool is_row(const Node& node, size_t row) const {
    return graph_.value(node.in[row]).type.shape == Shape{graph_.value(node.in[1 - row]).type.shape[-1]};
  }

  bool take_scale(const Node& node, size_t which) {
    const Node* convolution = rewriter_.lone_producer(node.in[which], kConv2d);
    if (!convolution || convolution->attrs.as<Conv2dAttrs>().is_fused() || !is_row(node, 1 - which)) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    attrs.scale = true;
    return replace(node, *convolution, attrs, rewriter_[node.in[1 - which]]);
  }

  bool take_sum(const Node& node, size_t which) {
    const Node* convolution = rewriter_.lone_producer(node.in[which], kConv2d);
    if (!convolution) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    if (attrs.residual || attrs.activation != GemmActivation::kNone) return false;
    if (is_row(node, 1 - which) && !attrs.bias) attrs.bias = true;
    else if (matcher_.is_sum(node)) attrs.residual = true;
    else return false;
    return replace(node, *convolution, attrs, rewriter_[node.in[1 - which]]);
  }

  bool activate(const Node& node, const Node* convolution, GemmActivation activation) {
    if (!is(convolution, kConv2d)) return false;
    Conv2dAttrs attrs = convolution->attrs.as<Conv2dAttrs>();
    if (attrs.activation != GemmActivation::kNone) return false;
    attrs.activation = activation;
    return replace(node, *convolution, attrs, {});
  }

  // x * sigmoid(x) of two nodes, the only readers of x.
  bool take_silu(const Node& node, size_t which) {
    const ValueId x = node.in[which];
    const Node* sigmoid = matcher_.producer(node.in[1 - which]);
    if (!is(sigmoid, kPointwise) || sigmoid->in != std::vector{x} || !matcher_.has_one_reader(sigmoid->out[0]) ||
        matcher_.readers(x).size() != 2 || sigmoid->attrs.as<PointwiseAttrs>().expression != sigmoid_)
      return false;
    return activate(node, producer_of(rewriter_[x]), GemmActivation::kSilu);
  }

  // Operands are appended in the order of fusion: factor, summand, residual.
  bool replace(const Node& node, const Node& convolution, const Conv2dAttrs& attrs, Tensor operand) {
    std::vector<Tensor> in = rewriter_.operands(convolution);
    if (operand.defined()) in.push_back(operand);
    if (!has_kernel(node, kConv2d, attrs, in)) return false;
    rewriter_.map(node.out[0], rewriter_.add(convolution, kConv2d, in, attrs)[0]);
    return true;
  }

  const Expression product_ = traced([](Tensor x, Tensor y) { return x * y; });
  const Expression sigmoid_ = traced([](Tensor x, Tensor) { return apply_scalar(Scalar::kSigmoid, x); });
};
}  // namespace

Graph fuse_convolution(const Graph& graph, const Backend& backend) { return Convolutions(graph, backend).run(); }
}  // namespace linnet

// Fuses into a product what follows it: the addition of a row (a bias), an activation function, and in the backward
// pass the multiplication by an activation function's derivative.
//
// GELU's gradient reads GELU's operand, so the product then has both as results. ReLU's gradient reads ReLU's result,
// so nothing else is kept. Dropout after ReLU joins too: the gradient through both is scaled where dropout's result is
// not zero, so neither its mask nor ReLU's result is needed.
#include <array>
#include <map>
#include <set>
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// Uses the op's own function, so its nodes are recognized whatever they are.
TracedActivation trace(GemmActivation kind, Tensor (*function)(At), bool with_gradient = true) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2}}), dy = graph.input("dy", {DType::kF32, {2}}), y = function(x);
  const Node node = graph.node(0);
  TracedActivation traced{kind, node.attrs.as<PointwiseAttrs>().expression};
  if (!with_gradient) return traced;
  const Tensor dx = kPointwise.gradient({graph, node, std::array{x}, std::array{y}, std::array{dy}})[0];
  const Node& gradient = graph.node(graph.value(dx.id).producer);
  traced.gradient = gradient.attrs.as<PointwiseAttrs>().expression;
  traced.dy = gradient.in[0] == dy.id ? 0 : 1, traced.aux = 1 - traced.dy;
  return traced;
}

Expression hard_swish_expression() {
  FormulaBuilder f;
  const Number x = f[0];
  return f.finish(x * max(0, min(1, x * (1.0 / 6) + 0.5)));
}

Expression relu6_expression() {
  FormulaBuilder f;
  const Number zero = f.constant(0), above = max(f[0], zero);
  return f.finish(min(above, 6));
}

// The product moves to the last node fused into it, where the other operand has been computed.
class Epilogue final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    const bool taken = fuse(node);
    if (is(node, kDropout)) dropouts_.emplace(node.in[0], &node);
    read_.insert(node.in.begin(), node.in.end());
    return taken;
  }

  bool fuse(const Node& node) {
    if (algebra_of(node) == Algebra::kAdd && (take_bias(node, 0) || take_bias(node, 1))) return true;
    if (!is(node, kPointwise)) return false;
    // A product that stores its result in bf16 rounds it anyway.
    const Expression expression = without_rounding(node.attrs.as<PointwiseAttrs>().expression);
    for (const TracedActivation& function : traced_activations()) {
      if (function.gradient.code.empty()) break;
      if (node.in.size() == 1 && expression == function.value) return take_activation(node, function);
      if (node.in.size() == 2 && expression == function.gradient) return take_derivative(node, function);
    }
    return false;
  }

  static bool is_open(const MatmulAttrs& attrs) { return attrs.is_sum() && !attrs.accumulate && !attrs.pre_activation; }

  bool take_bias(const Node& node, size_t which) {
    const Node* product = rewriter_.lone_producer(node.in[which], kMatmul);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    const Tensor row = rewriter_[node.in[1 - which]];
    const Shape& shape = graph_.value(node.in[which]).type.shape;
    if (attrs.bias || !is_open(attrs) || row.shape() != Shape{shape[-1]} || shape.rank() < 2) return false;
    attrs.bias = true;
    return take_in(node, *product, row, attrs);
  }

  bool take_activation(const Node& node, const TracedActivation& function) {
    const ValueId x = node.in[0];
    const Node* product = producer_of(rewriter_[x]);
    if (!is(product, kMatmul)) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    // Other readers of x must come later; kernels keep x beside GELU alone.
    const bool lone = rewriter_.lone_producer(x) != nullptr;
    if (!is_open(attrs) || (!lone && (read_.contains(x) || function.kind == GemmActivation::kRelu))) return false;
    attrs.activation = function.kind;
    attrs.pre_activation = !lone;
    const std::vector<Tensor> out = rewriter_.add(*product, kMatmul, rewriter_.operands(*product), attrs);
    rewriter_.map(node.out[0], out[0]);
    if (!lone) rewriter_.map(x, out[1]);
    return true;
  }

  // The dropout whose gradient `backward` computes, if it is a dropout of `x`.
  const Node* same_dropout(const Node& backward, ValueId x) const {
    const Node* forward = find_or(dropouts_, x, nullptr);
    const bool same =
        forward && is(backward, kDropout) && forward->attrs == backward.attrs && forward->in[1] == backward.in[1];
    return same ? forward : nullptr;
  }

  bool take_derivative(const Node& node, const TracedActivation& function) {
    ValueId dy = node.in[function.dy], x = node.in[function.aux];
    float scale = 1;
    const Node* backward = matcher_.producer(dy);
    if (function.kind == GemmActivation::kRelu && backward && rewriter_.lone_producer(dy)) {
      if (const Node* forward = same_dropout(*backward, x)) {
        dy = backward->in[0], x = forward->out[0];
        scale = dropout_scale(forward->attrs.as<DropoutAttrs>().probability);
      }
    }
    const Node* product = rewriter_.lone_producer(dy, kMatmul);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    const Tensor aux = rewriter_[x];
    if (!is_open(attrs) || aux.type() != rewriter_[dy].type()) return false;
    attrs.derivative = function.kind;
    attrs.derivative_scale = scale;
    return take_in(node, *product, aux, attrs);
  }

  std::set<ValueId> read_;                   // of the old graph, by the nodes so far
  std::map<ValueId, const Node*> dropouts_;  // of the old graph, by operand
};

// sum + product, where only this addition reads the product, becomes a product that adds to the sum: parts of a shared
// weight's gradient, and gradients of micro-steps, are added in place.

class Accumulate final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override { return matcher_.is_sum(node) && (fuse(node, 1) || fuse(node, 0)); }

  // Operand `which` is computed by an op that can add to the other operand.
  bool fuse(const Node& node, size_t which) {
    const Node* lone = rewriter_.lone_producer(node.in[which]);
    if (!lone || !lone->op->can_accumulate || !lone->op->can_accumulate(*lone) || lone->out.size() != 1) return false;
    return take_in(node, *lone, rewriter_[node.in[1 - which]], lone->op->with_accumulator(lone->attrs));
  }
};
}  // namespace

const std::vector<TracedActivation>& traced_activations() {
  static const std::vector<TracedActivation> all{trace(GemmActivation::kRelu, relu), trace(GemmActivation::kGelu, gelu),
      trace(GemmActivation::kGeluTanh, gelu_tanh), trace(GemmActivation::kSilu, silu, false),
      {GemmActivation::kHardSwish, hard_swish_expression()}, {GemmActivation::kRelu6, relu6_expression()}};
  return all;
}

Graph fuse_epilogue(const Graph& graph) { return Epilogue(graph).run(); }

Graph fuse_accumulate(const Graph& graph) { return Accumulate(graph).run(); }
}  // namespace linnet

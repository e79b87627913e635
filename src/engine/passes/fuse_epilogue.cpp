// What follows a product moves into it: the addition of a row (a bias), an activation function, and in the backward
// pass the multiplication by an activation function's derivative.
//
// A gradient of GELU reads what GELU was computed of: then the product has both as results. relu's gradient reads
// relu's result, so there nothing in between need be kept. Dropout after relu joins too: what flows back through both
// is scaled where dropout's result is not zero, so neither its mask nor relu's result is needed again.
#include <array>
#include <map>
#include <set>
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

namespace {

// An activation function as pointwise nodes compute it and its gradient.
struct Function {
  GemmActivation kind;
  Expression value, gradient;
  size_t aux, dy;  // operands of the gradient
};

// Found out by having the op itself make both nodes, so that they are recognized whatever it makes of them.
Function trace(GemmActivation kind, Tensor (*function)(At)) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2}}), dy = graph.input("dy", {DType::kF32, {2}}), y = function(x);
  const Node node = graph.node(0);
  const Tensor dx = kPointwise.gradient({graph, node, std::array{x}, std::array{y}, std::array{dy}})[0];
  const Node& gradient = graph.node(graph.value(dx.id).producer);
  const size_t dy_at = gradient.in[0] == dy.id ? 0 : 1;
  return {kind, node.attrs.as<PointwiseAttrs>().expression, gradient.attrs.as<PointwiseAttrs>().expression, 1 - dy_at,
          dy_at};
}

class Epilogue : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    // The product moves to where that stands which it takes in: by then the other operand has been computed.
    for (const Node& node : graph_.nodes()) {
      if (!take(node)) rewriter_.copy(node);
      if (is(node, kDropout)) dropouts_.emplace(node.in[0], &node);
      read_.insert(node.in.begin(), node.in.end());
    }
    return finish();
  }

 private:
  bool take(const Node& node) {
    if (algebra_of(node) == Algebra::kAdd && (take_bias(node, 0) || take_bias(node, 1))) return true;
    if (!is(node, kPointwise)) return false;
    // A product that stores its result in bf16 rounds it anyway.
    const Expression expression = without_rounding(node.attrs.as<PointwiseAttrs>().expression);
    for (const Function& function : functions_) {
      if (node.in.size() == 1 && expression == function.value) return take_activation(node, function);
      if (node.in.size() == 2 && expression == function.gradient) return take_derivative(node, function);
    }
    return false;
  }

  const Node* lone_matmul(ValueId old) const {
    const Node* producer = rewriter_.lone_producer(old);
    return is(producer, kMatmul) ? producer : nullptr;
  }

  static bool is_open(const MatmulAttrs& attrs) { return attrs.is_sum() && !attrs.accumulate && !attrs.pre_activation; }

  std::vector<Tensor> replace(const Node& product, const MatmulAttrs& attrs, const std::vector<Tensor>& in) {
    const Node location = product;  // adding a node moves the others
    return rewriter_.add(location, kMatmul, in, attrs);
  }

  bool take_bias(const Node& node, size_t which) {
    const Node* product = lone_matmul(node.in[which]);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    const Tensor row = rewriter_[node.in[1 - which]];
    const Shape& shape = graph_.value(node.in[which]).type.shape;
    if (attrs.bias || !is_open(attrs) || row.shape() != Shape{shape[-1]} || shape.rank() < 2) return false;
    attrs.bias = true;
    std::vector<Tensor> in = rewriter_.operands(*product);
    in.push_back(row);
    rewriter_.map(node.out[0], replace(*product, attrs, in)[0]);
    return true;
  }

  bool take_activation(const Node& node, const Function& function) {
    const ValueId x = node.in[0];
    const NodeId producer = rewriter_.graph().value(rewriter_[x].id).producer;
    if (producer == kNone || !is(rewriter_.graph().node(producer), kMatmul)) return false;
    const Node& product = rewriter_.graph().node(producer);
    MatmulAttrs attrs = product.attrs.as<MatmulAttrs>();
    // Others that read x must come later; kernels keep it beside GELU alone.
    const bool lone = rewriter_.lone_producer(x) != nullptr;
    if (!is_open(attrs) || (!lone && (read_.contains(x) || function.kind == GemmActivation::kRelu))) return false;
    attrs.activation = function.kind;
    attrs.pre_activation = !lone;
    const std::vector<Tensor> out = replace(product, attrs, rewriter_.operands(product));
    rewriter_.map(node.out[0], out[0]);
    if (!lone) rewriter_.map(x, out[1]);
    return true;
  }

  // The node that drops out what `backward` passes back the gradient of, if that was a dropout of `x`.
  const Node* same_dropout(const Node& backward, ValueId x) const {
    const auto found = dropouts_.find(x);
    if (found == dropouts_.end() || !is(backward, kDropout)) return nullptr;
    const auto &forward = found->second->attrs.as<DropoutAttrs>(), &back = backward.attrs.as<DropoutAttrs>();
    const bool same = forward.site == back.site && forward.probability == back.probability &&
                      forward.layout == back.layout && forward.first_column == back.first_column &&
                      found->second->in[1] == backward.in[1];
    return same ? found->second : nullptr;
  }

  bool take_derivative(const Node& node, const Function& function) {
    ValueId dy = node.in[function.dy], x = node.in[function.aux];
    float scale = 1;
    const Node* backward = matcher_.producer(dy);
    if (function.kind == GemmActivation::kRelu && backward && rewriter_.lone_producer(dy)) {
      if (const Node* forward = same_dropout(*backward, x)) {
        dy = backward->in[0], x = forward->out[0];
        scale = dropout_scale(forward->attrs.as<DropoutAttrs>().probability);
      }
    }
    const Node* product = lone_matmul(dy);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    const Tensor aux = rewriter_[x];
    if (!is_open(attrs) || aux.type() != rewriter_[dy].type()) return false;
    attrs.derivative = function.kind;
    attrs.derivative_scale = scale;
    std::vector<Tensor> in = rewriter_.operands(*product);
    in.push_back(aux);
    rewriter_.map(node.out[0], replace(*product, attrs, in)[0]);
    return true;
  }

  std::set<ValueId> read_;                   // of the old graph, by the nodes so far
  std::map<ValueId, const Node*> dropouts_;  // of the old graph, by operand
  const std::array<Function, 3> functions_{trace(GemmActivation::kRelu, relu), trace(GemmActivation::kGelu, gelu),
                                           trace(GemmActivation::kGeluTanh, gelu_tanh)};
};

// sum + product, where only this addition reads the product, becomes a product that adds to the sum: the contributions
// to a shared weight's gradient, or to the gradients of earlier micro-steps, are added up where they lie.

class Accumulate : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    return replace_nodes(
        [this](const Node& node) { return matcher_.is_sum(node) && (fuse(node, 1) || fuse(node, 0)); });
  }

 private:
  // Operand `which` is computed by an op that can add to the other one.
  bool fuse(const Node& node, size_t which) {
    const Node* lone = rewriter_.lone_producer(node.in[which]);
    if (!lone || !lone->op->can_accumulate || !lone->op->can_accumulate(*lone) || lone->out.size() != 1) return false;
    const Node producer = *lone;  // adding a node moves the others
    std::vector<Tensor> in = rewriter_.operands(producer);
    in.push_back(rewriter_[node.in[1 - which]]);
    rewriter_.map(node.out[0],
                  rewriter_.add(producer, *producer.op, in, producer.op->with_accumulator(producer.attrs))[0]);
    return true;
  }
};

}  // namespace

Graph fuse_epilogue(const Graph& graph) { return Epilogue(graph).run(); }

Graph fuse_accumulate(const Graph& graph) { return Accumulate(graph).run(); }

}  // namespace linnet

// What follows a convolution moves into it: a factor and a summand for each filter (a bias, or batch normalization with
// the statistics it has learned), the addition of a tensor of the result's shape, and an activation function. The
// result then is written once instead of being read and written again. The bits stay the same: the kernels round after
// each operation.
#include <array>
#include <map>
#include <optional>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/max_pool/max_pool.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
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

// Whether two expressions of one operand are one function, operand by operand, whatever the order of their
// instructions. Constants count as floats, as which kernels have them.
class SameFunction {
 public:
  SameFunction(const Expression& a, const Expression& b) : a_(a.code), b_(b.code) {}
  bool operator()() const { return same(static_cast<int>(a_.size()) - 1, static_cast<int>(b_.size()) - 1); }

 private:
  bool same(int i, int j) const {
    if (i < 0 || j < 0) return i == j;
    const Instruction &x = a_[static_cast<size_t>(i)], &y = b_[static_cast<size_t>(j)];
    if (x.function != y.function) return false;
    if (x.function == Scalar::kInput) return x.a == y.a;
    if (x.function == Scalar::kConstant) return static_cast<float>(x.constant) == static_cast<float>(y.constant);
    if (same(x.a, y.a) && same(x.b, y.b) && same(x.c, y.c)) return true;
    const bool commutes = x.function == Scalar::kAdd || x.function == Scalar::kMul || x.function == Scalar::kMax ||
                          x.function == Scalar::kMin;
    return commutes && same(x.a, y.b) && same(x.b, y.a);
  }

  const std::vector<Instruction>&a_, &b_;
};

struct Activation {
  GemmActivation kind;
  Expression expression;
};

Expression hard_swish_expression() {
  ExpressionBuilder b;
  const auto x = b.input(0), line = b.apply(Scalar::kMul, x, b.constant(1.0 / 6));
  const auto ramp = b.apply(Scalar::kMin, b.constant(1), b.apply(Scalar::kAdd, line, b.constant(0.5)));
  return b.finish(b.apply(Scalar::kMul, x, b.apply(Scalar::kMax, b.constant(0), ramp)));
}

Expression relu6_expression() {
  ExpressionBuilder b;
  const auto x = b.apply(Scalar::kMax, b.input(0), b.constant(0));
  return b.finish(b.apply(Scalar::kMin, x, b.constant(6)));
}

const std::vector<Activation>& activations() {  // ReLU first
  static const std::vector<Activation> all{
      {GemmActivation::kRelu, traced([](Tensor x, Tensor) { return relu(x); })},
      {GemmActivation::kGelu, traced([](Tensor x, Tensor) { return gelu(x); })},
      {GemmActivation::kGeluTanh, traced([](Tensor x, Tensor) { return gelu_tanh(x); })},
      {GemmActivation::kSilu, traced([](Tensor x, Tensor) { return silu(x); })},
      {GemmActivation::kHardSwish, hard_swish_expression()},
      {GemmActivation::kRelu6, relu6_expression()}};
  return all;
}

class Convolutions : Fusion {
 public:
  using Fusion::Fusion;
  // The convolution moves to where that stands which it takes in: by then the other operand has been computed.
  Graph run() {
    return replace_nodes([this](const Node& node) { return take(node); });
  }

 private:
  bool take(const Node& node) {
    if (!is(node, kPointwise)) return false;
    if (algebra_of(node) == Algebra::kAdd) return take_sum(node, 0) || take_sum(node, 1);
    const Expression& expression = node.attrs.as<PointwiseAttrs>().expression;
    if (node.in.size() == 2 && expression == product_)
      return take_scale(node, 0) || take_scale(node, 1) || take_silu(node, 0) || take_silu(node, 1);
    if (node.in.size() != 1) return false;
    for (const Activation& activation : activations())
      if (SameFunction(expression, activation.expression)()) return take_activation(node, activation.kind);
    return false;
  }

  const Node* lone_convolution(ValueId old) const {
    const Node* producer = rewriter_.lone_producer(old);
    return is(producer, kConv2d) ? producer : nullptr;
  }

  // Whether operand `row` of the node is one number for each filter.
  bool is_row(const Node& node, size_t row) const {
    return graph_.value(node.in[row]).type.shape == Shape{graph_.value(node.in[1 - row]).type.shape[-1]};
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
    if (attrs.residual || attrs.activation != GemmActivation::kNone) return false;
    if (is_row(node, 1 - which) && !attrs.bias) attrs.bias = true;
    else if (matcher_.is_sum(node)) attrs.residual = true;
    else return false;
    return replace(node, *convolution, attrs, rewriter_[node.in[1 - which]]);
  }

  bool take_activation(const Node& node, GemmActivation activation) {
    const Node* convolution = lone_convolution(node.in[0]);
    return convolution && activate(node, *convolution, activation);
  }

  bool activate(const Node& node, const Node& convolution, GemmActivation activation) {
    Conv2dAttrs attrs = convolution.attrs.as<Conv2dAttrs>();
    if (attrs.activation != GemmActivation::kNone) return false;
    attrs.activation = activation;
    return replace(node, convolution, attrs, {});
  }

  // x * sigmoid(x) of two nodes, which alone read x.
  bool take_silu(const Node& node, size_t which) {
    const ValueId x = node.in[which];
    const Node* sigmoid = matcher_.producer(node.in[1 - which]);
    if (!is(sigmoid, kPointwise) || sigmoid->in != std::vector{x} || !matcher_.has_one_reader(sigmoid->out[0]) ||
        matcher_.readers(x).size() != 2 || sigmoid->attrs.as<PointwiseAttrs>().expression != sigmoid_)
      return false;
    const NodeId producer = rewriter_.graph().value(rewriter_[x].id).producer;
    if (producer == kNone || !is(rewriter_.graph().node(producer), kConv2d)) return false;
    return activate(node, rewriter_.graph().node(producer), GemmActivation::kSilu);
  }

  // Operands come in the order in which they are taken in: factor, summand, residual.
  bool replace(const Node& node, const Node& convolution, const Conv2dAttrs& attrs, Tensor operand) {
    std::vector<Tensor> in = rewriter_.operands(convolution);
    if (operand.defined()) in.push_back(operand);
    const Node location = convolution;  // adding a node moves the others
    if (!has_kernel(node, kConv2d, attrs, in)) return false;
    rewriter_.map(node.out[0], rewriter_.add(location, kConv2d, in, attrs)[0]);
    return true;
  }

  const Expression product_ = traced([](Tensor x, Tensor y) { return x * y; });
  const Expression sigmoid_ = traced([](Tensor x, Tensor) { return apply_scalar(Scalar::kSigmoid, x); });
};

class Int8Convolutions : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    return replace_nodes([this](const Node& node) { return take(node); });
  }

 private:
  bool take(const Node& node) {
    if (!is(node, kConv2d)) return false;
    const auto& attrs = node.attrs.as<Conv2dAttrs>();
    const Node* weight = matcher_.producer(before_reshapes(node.in[1]));
    if (!is(weight, kDequantize) || attrs.groups != 1 || attrs.packed) return false;
    const auto& packed = weight->attrs.as<QuantizedAttrs>();
    const Shape& filters = graph_.value(node.in[1]).type.shape;
    if (packed.format != WeightFormat::kInt8 || packed.weight.shape[0] != filters[0]) return false;
    const auto axis = [&](int64_t size) {
      return WindowAxis{size, attrs.stride, attrs.dilation, attrs.padding, attrs.padding};
    };
    const QuantizedConv2dAttrs made{.weight = packed,
                                    .rounding = rounding_of(node.in[0], packed.input_scale),
                                    .vertical = axis(filters[1]),
                                    .horizontal = axis(filters[2]),
                                    .scale = attrs.scale,
                                    .bias = attrs.bias,
                                    .residual = attrs.residual,
                                    .relu = attrs.activation == GemmActivation::kRelu};
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    const Tensor y = rewriter_.add(node, kQuantizedConv2d, in, made)[0];
    rewriter_.map(node.out[0], after(node, y, attrs.activation));
    return true;
  }

  // These convolutions have no function but ReLU: others follow them.
  Tensor after(const Node& node, Tensor y, GemmActivation activation) {
    for (const Activation& other : activations())
      if (other.kind == activation && activation != GemmActivation::kRelu)
        return rewriter_.add(node, kPointwise, std::array{y}, PointwiseAttrs{other.expression})[0];
    return y;
  }

  // What is nowhere negative has twice the steps: 0..255 stand for the numbers up to the same bound.
  RoundingAttrs rounding_of(ValueId x, float scale) const {
    if (!is_positive(x)) return scale > 0 ? rounding_attrs(static_rounding(scale)) : RoundingAttrs{};
    return {.scale = scale * 127 / 255, .zero = 0, .least = 0, .most = 255};
  }

  bool is_positive(ValueId value) const {
    const Node* node = matcher_.producer(value);
    if (!node) return false;
    const auto all = [&] {
      for (const ValueId in : node->in)
        if (!is_positive(in)) return false;
      return true;
    };
    if (is(*node, kConv2d)) return node->attrs.as<Conv2dAttrs>().activation == GemmActivation::kRelu;
    if (is(*node, kPointwise)) return node->attrs.as<PointwiseAttrs>().expression == relu_;
    if (is(*node, kFill)) return node->attrs.as<FillAttrs>().value >= 0;
    return (is(*node, kMaxPool) || is(*node, kReshape) || is(*node, kConcat)) && all();
  }

  ValueId before_reshapes(ValueId value) const {
    const Node* node = matcher_.producer(value);
    return is(node, kReshape) ? before_reshapes(node->in[0]) : value;
  }

  const Expression& relu_ = activations().front().expression;
};

// The codes that results are handed on as.
class Codes : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    for (const Node& node : graph_.nodes())
      if (is(node, kQuantizedConv2d))
        if (const auto codes = codes_of(node.out[0])) codes_[node.out[0]] = *codes;
    if (codes_.empty()) return remove_dead_code(graph_);
    for (const Node& node : graph_.nodes()) rewrite(node);
    return rewriter_.finish();
  }

 private:
  // How all that read a result would round it; empty: not all do, or not alike.
  std::optional<RoundingAttrs> codes_of(ValueId value) const {
    std::optional<RoundingAttrs> found;
    for (const NodeId reader : matcher_.readers(value)) {
      if (reader == graph_.node_count()) return {};
      const Node& node = graph_.node(reader);
      if (!is(node, kQuantizedConv2d)) return {};
      const auto& attrs = node.attrs.as<QuantizedConv2dAttrs>();
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (node.in[i] != value || (attrs.residual && i == attrs.residual_at())) continue;
        if (i != 0 || attrs.rounding.scale == 0 || (found && *found != attrs.rounding)) return {};
        found = attrs.rounding;
      }
    }
    return found;
  }

  void rewrite(const Node& node) {
    if (!is(node, kQuantizedConv2d)) return rewriter_.copy(node);
    auto attrs = node.attrs.as<QuantizedConv2dAttrs>();
    if (const auto own = codes_.find(node.out[0]); own != codes_.end()) attrs.result_rounding = own->second;
    if (attrs.residual)
      if (const auto added = codes_.find(node.in[attrs.residual_at()]); added != codes_.end())
        attrs.residual_rounding = added->second;
    rewriter_.replace(node, kQuantizedConv2d, rewriter_.inputs_of(node), attrs);
  }

  std::map<ValueId, RoundingAttrs> codes_;
};

}  // namespace

Graph fuse_convolution(const Graph& graph, const Backend& backend) { return Convolutions(graph, backend).run(); }

Graph fuse_int8_convolution(const Graph& graph) { return Codes(Int8Convolutions(graph).run()).run(); }

}  // namespace linnet

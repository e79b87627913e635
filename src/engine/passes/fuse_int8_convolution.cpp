#include "engine/passes/fuse_int8_convolution.h"

#include <map>
#include <optional>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/max_pool/max_pool.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized_conv2d.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class Int8Convolutions {
 public:
  explicit Int8Convolutions(const Graph& graph) : graph_(graph), matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes())
      if (!take(node)) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
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
                                    .relu = attrs.relu};
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    rewriter_.map(node.out[0], rewriter_.add(node, kQuantizedConv2d, in, made)[0]);
    return true;
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
    if (is(*node, kConv2d)) return node->attrs.as<Conv2dAttrs>().relu;
    if (is(*node, kPointwise)) return node->attrs.as<PointwiseAttrs>().expression == relu_;
    if (is(*node, kFill)) return node->attrs.as<FillAttrs>().value >= 0;
    return (is(*node, kMaxPool) || is(*node, kReshape) || is(*node, kConcat)) && all();
  }

  ValueId before_reshapes(ValueId value) const {
    const Node* node = matcher_.producer(value);
    return is(node, kReshape) ? before_reshapes(node->in[0]) : value;
  }

  static Expression relu_expression() {
    Graph graph;
    relu(graph.input("x", {DType::kF32, {2}}));
    return graph.node(0).attrs.as<PointwiseAttrs>().expression;
  }

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  const Expression relu_ = relu_expression();
};

// The codes that results are handed on as.
class Codes {
 public:
  explicit Codes(const Graph& graph) : graph_(graph), matcher_(graph), rewriter_(graph) {}

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
    rewriter_.map(node.out[0], rewriter_.add(node, kQuantizedConv2d, rewriter_.inputs_of(node), attrs)[0]);
  }

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  std::map<ValueId, RoundingAttrs> codes_;
};

}  // namespace

Graph fuse_int8_convolution(const Graph& graph) { return Codes(Int8Convolutions(graph).run()).run(); }

}  // namespace linnet

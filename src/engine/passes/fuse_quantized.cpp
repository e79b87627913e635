// Lets products and convolutions (in int8) with a quantized weight, and lookups in a quantized table, read it as it
// lies in memory. Other readers compute with the dequantized parameter.
//
// A result read only by products or convolutions that round it by one scale known beforehand (static int8) is written
// as their codes; its floats are never stored.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
class Quantized final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override { return product(node) || lookup(node) || loss(node); }

  const Node* dequantized(ValueId value) const { return matcher_.producer(value, kDequantize); }

  // The same through reshapes that cancel out, for filters that are a product's matrix.
  const Node* dequantized_matrix(ValueId value) const {
    const Node* producer = dequantized(before_reshapes(graph_, value));
    return producer && graph_.value(value).type == graph_.value(producer->out[0]).type ? producer : nullptr;
  }

  // a W^T or, in a backward pass, a W, with all that was fused into the node.
  bool product(const Node& node) {
    if (!is(node, kMatmul)) return false;
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    const Node* weight = dequantized_matrix(node.in[1]);
    if (!weight || !has_quantized_product(weight->attrs.as<QuantizedAttrs>().format, attrs)) return false;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    QuantizedMatmulAttrs product{weight->attrs.as<QuantizedAttrs>(), attrs};
    if (product.weight.input_scale > 0) product.rounding = {static_rounding(product.weight.input_scale)};
    const Node* rounded = matcher_.producer(node.in[0]);
    if (is(rounded, kRoundActivations) && product.weight.format == WeightFormat::kInt8)
      product.rounding = rounded->attrs.as<StaticRounding>(), in[0] = rewriter_[rounded->in[0]];
    return put(node, kQuantizedMatmul, in, product);
  }

  bool lookup(const Node& node) {
    if (!is(node, kEmbedding)) return false;
    const Node* table = dequantized(node.in[0]);
    if (!table) return false;
    return put(node, kQuantizedEmbedding, std::array{rewriter_[table->in[0]], rewriter_[node.in[1]]}, table->attrs);
  }

  // A classifier's weight, frozen or stored in bf16. (kInt8 rounds the other operand and is not used for losses.)
  bool loss(const Node& node) {
    if (!is(node, kLinearCrossEntropy) && !is(node, kLinearCrossEntropyGrad)) return false;
    const Node* weight = dequantized(node.in[1]);
    auto attrs = node.attrs.as<LinearCrossEntropyAttrs>();
    if (!weight || weight->attrs.as<QuantizedAttrs>().format == WeightFormat::kInt8) return false;
    attrs.packed = true, attrs.weight = weight->attrs.as<QuantizedAttrs>();
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    return put(node, *node.op, in, attrs);
  }

  // A GPU reads codes in products of few rows, and int8 codes in all plain products. Else it dequantizes the weight.
  bool put(const Node& node, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs) {
    if (!backend_.device->is_host() && !has_kernel(node, op, attrs, in)) return false;
    rewriter_.replace(node, op, in, attrs);
    return true;
  }
};

class Int8Convolutions final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kConv2d)) return false;
    const auto& attrs = node.attrs.as<Conv2dAttrs>();
    const Node* weight = matcher_.producer(before_reshapes(graph_, node.in[1]), kDequantize);
    if (!weight || attrs.groups != 1 || attrs.packed) return false;
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
    rewriter_.map(node.out[0], after(node, rewriter_.add(node, kQuantizedConv2d, in, made)[0], attrs.activation));
    return true;
  }

  // These convolutions fuse ReLU alone; other functions become nodes behind them.
  Tensor after(const Node& node, Tensor y, GemmActivation activation) {
    for (const TracedActivation& other : traced_activations())
      if (other.kind == activation && activation != GemmActivation::kRelu)
        return rewriter_.add(node, kPointwise, std::array{y}, PointwiseAttrs{other.value})[0];
    return y;
  }

  // Non-negative values have twice the steps: codes 0..255 stand for the numbers up to the same bound.
  StaticRounding rounding_of(ValueId x, float scale) const {
    if (!is_positive(x)) return scale > 0 ? static_rounding(scale) : StaticRounding{};
    return {.scale = scale * 127 / 255, .zero = 0, .least = 0, .most = 255};
  }

  bool is_positive(ValueId value) const {
    const Node* node = matcher_.producer(value);
    if (!node) return false;
    if (is(*node, kConv2d)) return node->attrs.as<Conv2dAttrs>().activation == GemmActivation::kRelu;
    if (is(*node, kPointwise)) return node->attrs.as<PointwiseAttrs>().expression == traced_activations().front().value;
    if (is(*node, kFill)) return node->attrs.as<FillAttrs>().value >= 0;
    return (is(*node, kMaxPool) || is(*node, kReshape) || is(*node, kConcat)) &&
           std::ranges::all_of(node->in, [&](ValueId in) { return is_positive(in); });
  }
};

// A result of `op` is passed on as codes if only nodes of that op read it and all round it by the same known scale.
template <class OpAttrs> class CodedResults final : public Fusion {
 public:
  CodedResults(const Graph& graph, const OpDef& op) : Fusion(graph), op_(op) {}

 private:
  static constexpr bool kHasResidual = requires(const OpAttrs& attrs) { attrs.residual; };

  bool take(const Node& node) override {
    if (!is(node, op_)) return false;
    auto attrs = node.attrs.as<OpAttrs>();
    if (const auto codes = codes_of(node.out[0]); codes && attrs.weight.format == WeightFormat::kInt8)
      attrs.result_rounding = *codes;
    if constexpr (kHasResidual)
      if (attrs.residual && is(matcher_.producer(node.in[attrs.residual_at()]), op_))
        attrs.residual_rounding = codes_of(node.in[attrs.residual_at()]).value_or(attrs.residual_rounding);
    rewriter_.replace(node, op_, rewriter_.inputs_of(node), attrs);
    return true;
  }

  // The rounding that all readers agree on, or empty.
  std::optional<StaticRounding> codes_of(ValueId value) const {
    std::optional<StaticRounding> found;
    for (const NodeId reader : matcher_.readers(value)) {
      if (reader == graph_.node_count() || !is(graph_.node(reader), op_)) return {};
      const Node& node = graph_.node(reader);
      const auto& attrs = node.attrs.as<OpAttrs>();
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (node.in[i] != value) continue;
        if constexpr (kHasResidual)
          if (attrs.residual && i == attrs.residual_at()) continue;
        if (i != 0 || attrs.rounding.scale == 0 || (found && *found != attrs.rounding)) return {};
        found = attrs.rounding;
      }
    }
    return found;
  }

  const OpDef& op_;
};

// Training in int8 (Wortsman et al. 2023, "SwitchBack"): a linear layer's product a W^T and its input's gradient dy W
// multiply 8-bit numbers. Each row of a and dy has its own scale, and a row with outliers also keeps a remainder
// (StaticRounding::largest_error). The weight is rounded and packed once per product, with a scale for each row of W or
// W^T. The weight's gradient dy^T a keeps its precision: both operands are new in each step, and errors would add up in
// the weight.
//
// Table lookups, a classifier with its loss (linear_cross_entropy) and convolutions are other ops, so the first and the
// last layer of a language model are not rounded.

// A smaller product takes less time than rounding its operands.
constexpr int64_t kLeastSize = 32;
constexpr float kLargestError = 0.04F;

class QuantizeProducts final : public Fusion {
  using Fusion::Fusion;

  // Whether the value is an input of the graph or a reshape or part of one, which does not change in a run.
  bool is_weight(ValueId value) const {
    const Node* producer = matcher_.producer(value);
    return !producer || ((is(producer, kReshape) || is(producer, kSplit) || is(producer, kDequantize)) &&
                            is_weight(producer->in[0]));
  }

  bool take(const Node& node) override {
    if (!is(node, kMatmul)) return false;
    MatmulAttrs product = node.attrs.as<MatmulAttrs>();
    const Shape &a = graph_.value(node.in[0]).type.shape, &w = graph_.value(node.in[1]).type.shape;
    if (product.trans_a || product.row_sums || w.rank() != 2 || !is_weight(node.in[1])) return false;
    if (std::min({a.elements() / a[-1], w[0], w[1]}) < kLeastSize || a[-1] > PackedShape::kMostColumns) return false;
    const bool transposed = !product.trans_b;
    product.trans_b = true;
    const QuantizedAttrs weight{.weight = {DType::kF32, transposed ? Shape{w[1], w[0]} : w}};
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    // Recomputed nodes of the backward pass pack again, so that no packed weight stays in memory.
    Tensor& packed = packed_[{node.in[1], transposed, id_of(node) > loss_}];
    if (!packed.defined())
      packed = rewriter_.add(node, kQuantizeWeight, std::array{in[1]}, QuantizeWeightAttrs{weight, transposed})[0];
    in[1] = packed;
    rewriter_.replace(
        node, kQuantizedMatmul, in, QuantizedMatmulAttrs{weight, product, {.largest_error = kLargestError}});
    return true;
  }

  const NodeId loss_ = find_loss(graph_);
  std::map<std::tuple<ValueId, bool, bool>, Tensor> packed_;  // by weight, transposed, in the backward pass
};
}  // namespace

Graph fuse_quantized(const Graph& graph, const Backend& backend) {
  return CodedResults<QuantizedMatmulAttrs>(Quantized(graph, backend).run(), kQuantizedMatmul).run();
}

Graph fuse_int8_convolution(const Graph& graph) {
  return CodedResults<QuantizedConv2dAttrs>(Int8Convolutions(graph).run(), kQuantizedConv2d).run();
}

Graph quantize_products(const Graph& graph) { return QuantizeProducts(graph).run(); }
}  // namespace linnet

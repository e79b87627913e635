// A product with a quantized weight, or a lookup in a quantized table, reads it as it lies in memory. What else reads
// such a parameter computes with the numbers that it stands for.
//
// A product whose result is read by products alone that round it by one scale, known beforehand (static int8: the first
// layer of a feed-forward block), writes the codes that they would round it to: its floats are never stored.
#include <algorithm>
#include <array>
#include <optional>
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class Quantized : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    return replace_nodes([this](const Node& node) { return product(node) || lookup(node) || loss(node); });
  }

 private:
  const Node* dequantized(ValueId value) const {
    const Node* producer = matcher_.producer(value);
    return is(producer, kDequantize) ? producer : nullptr;
  }

  // The same through reshapes that end where they began: of filters that are a product's matrix.
  const Node* dequantized_matrix(ValueId value) const {
    const ValueId matrix = value;
    while (is(matcher_.producer(value), kReshape)) value = matcher_.producer(value)->in[0];
    const Node* producer = dequantized(value);
    return producer && graph_.value(matrix).type == graph_.value(producer->out[0]).type ? producer : nullptr;
  }

  // a W^T or, in a backward pass, a W, with all that follows it in one node.
  bool product(const Node& node) {
    if (!is(node, kMatmul)) return false;
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    const Node* weight = dequantized_matrix(node.in[1]);
    if (!weight || !has_quantized_product(weight->attrs.as<QuantizedAttrs>().format, attrs)) return false;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    QuantizedMatmulAttrs product{weight->attrs.as<QuantizedAttrs>(), attrs};
    if (product.weight.input_scale > 0) product.rounding = rounding_attrs(static_rounding(product.weight.input_scale));
    const Node* rounded = matcher_.producer(node.in[0]);
    if (is(rounded, kRoundActivations) && product.weight.format == WeightFormat::kInt8)
      product.rounding = rounded->attrs.as<RoundingAttrs>(), in[0] = rewriter_[rounded->in[0]];
    return put(node, kQuantizedMatmul, in, product);
  }

  bool lookup(const Node& node) {
    if (!is(node, kEmbedding)) return false;
    const Node* table = dequantized(node.in[0]);
    if (!table) return false;
    return put(node, kQuantizedEmbedding, std::array{rewriter_[table->in[0]], rewriter_[node.in[1]]}, table->attrs);
  }

  // A classifier's weight, frozen or stored in bf16. (With kInt8, whose products round their other operand, losses are
  // not computed.)
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

  // A GPU reads codes in products of few rows alone; elsewhere it multiplies what dequantize gives.
  bool put(const Node& node, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs) {
    if (!backend_.device->is_host() && !has_kernel(node, op, attrs, in)) return false;
    rewriter_.replace(node, op, in, attrs);
    return true;
  }
};

// For graphs of Quantized.
class CodedResults : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    return replace_nodes([this](const Node& node) { return take(node); });
  }

 private:
  bool take(const Node& node) {
    if (!is(node, kQuantizedMatmul)) return false;
    auto attrs = node.attrs.as<QuantizedMatmulAttrs>();
    const std::optional<RoundingAttrs> codes = codes_of(node.out[0]);
    if (!codes || attrs.weight.format != WeightFormat::kInt8) return false;
    attrs.result_rounding = *codes;
    rewriter_.replace(node, kQuantizedMatmul, rewriter_.inputs_of(node), attrs);
    return true;
  }

  // How all that read a result round it; empty: not all do, or not alike.
  std::optional<RoundingAttrs> codes_of(ValueId value) const {
    std::optional<RoundingAttrs> found;
    for (const NodeId reader : matcher_.readers(value)) {
      if (reader == graph_.node_count()) return {};  // the graph's result
      const Node& node = graph_.node(reader);
      if (!is(node, kQuantizedMatmul) || std::ranges::count(node.in, value) > 1 || node.in[0] != value) return {};
      const RoundingAttrs& rounding = node.attrs.as<QuantizedMatmulAttrs>().rounding;
      if (rounding.scale == 0 || (found && *found != rounding)) return {};
      found = rounding;
    }
    return found;
  }
};

}  // namespace

Graph fuse_quantized(const Graph& graph, const Backend& backend) {
  return CodedResults(Quantized(graph, backend).run()).run();
}

}  // namespace linnet

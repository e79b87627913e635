// A product with a quantized weight, or a lookup in a quantized table, reads it as it lies in memory. What else reads
// such a parameter computes with the numbers that it stands for.
//
// A product whose result is read by products alone that round it by one scale, known beforehand (static int8: the first
// layer of a feed-forward block), writes the codes that they would round it to: its floats are never stored.
#include <algorithm>
#include <optional>

#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class Quantized {
 public:
  explicit Quantized(const Graph& graph) : matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!(product(node) || lookup(node) || loss(node))) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
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
    const Graph& old = rewriter_.old();
    return producer && old.value(matrix).type == old.value(producer->out[0]).type ? producer : nullptr;
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
    const std::vector<Tensor> out = rewriter_.add(node, kQuantizedMatmul, in, product);
    for (size_t i = 0; i < out.size(); ++i) rewriter_.map(node.out[i], out[i]);
    return true;
  }

  bool lookup(const Node& node) {
    if (!is(node, kEmbedding)) return false;
    const Node* table = dequantized(node.in[0]);
    if (!table) return false;
    const std::vector<Tensor> in{rewriter_[table->in[0]], rewriter_[node.in[1]]};
    rewriter_.map(node.out[0], rewriter_.add(node, kQuantizedEmbedding, in, table->attrs)[0]);
    return true;
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
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, in, attrs);
    for (size_t i = 0; i < out.size(); ++i) rewriter_.map(node.out[i], out[i]);
    return true;
  }

  const Matcher matcher_;
  Rewriter rewriter_;
};

// For graphs of Quantized.
class CodedResults {
 public:
  explicit CodedResults(const Graph& graph) : matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!take(node)) rewriter_.copy(node);
    return rewriter_.finish();
  }

 private:
  bool take(const Node& node) {
    if (!is(node, kQuantizedMatmul)) return false;
    auto attrs = node.attrs.as<QuantizedMatmulAttrs>();
    const std::optional<RoundingAttrs> codes = codes_of(node.out[0]);
    if (!codes || attrs.weight.format != WeightFormat::kInt8) return false;
    attrs.result_rounding = *codes;
    rewriter_.map(node.out[0], rewriter_.add(node, kQuantizedMatmul, rewriter_.inputs_of(node), attrs)[0]);
    return true;
  }

  // How all that read a result round it; empty: not all do, or not alike.
  std::optional<RoundingAttrs> codes_of(ValueId value) const {
    std::optional<RoundingAttrs> found;
    for (const NodeId reader : matcher_.readers(value)) {
      if (reader == rewriter_.old().node_count()) return {};  // the graph's result
      const Node& node = rewriter_.old().node(reader);
      if (!is(node, kQuantizedMatmul) || std::ranges::count(node.in, value) > 1 || node.in[0] != value) return {};
      const RoundingAttrs& rounding = node.attrs.as<QuantizedMatmulAttrs>().rounding;
      if (rounding.scale == 0 || (found && *found != rounding)) return {};
      found = rounding;
    }
    return found;
  }

  const Matcher matcher_;
  Rewriter rewriter_;
};

}  // namespace

Graph fuse_quantized(const Graph& graph) { return CodedResults(Quantized(graph).run()).run(); }

}  // namespace linnet

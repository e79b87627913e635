// A product with a quantized weight, or a lookup in a quantized table, reads it as it lies in memory. What else reads
// such a parameter computes with the numbers that it stands for.
#include "ops/embedding/embedding.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/quantized.h"
#include "passes/matcher.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

class Quantized {
 public:
  explicit Quantized(const Graph& graph) : matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!(is(node, kMatmul) ? product(node) : is(node, kEmbedding) && lookup(node))) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  const Node* dequantized(ValueId value) const {
    const Node* producer = matcher_.producer(value);
    return is(producer, kDequantize) ? producer : nullptr;
  }

  // a W^T with all that follows it in one node. Model code has no other product with a weight outside of training.
  bool product(const Node& node) {
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    const Node* weight = dequantized(node.in[1]);
    if (!weight || attrs.trans_a || !attrs.trans_b || attrs.has_aux() || attrs.pre_activation) return false;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[1] = rewriter_[weight->in[0]];
    map(node, kQuantizedMatmul, in,
        QuantizedMatmulAttrs{.weight = weight->attrs.as<QuantizedAttrs>(),
                             .bias = attrs.bias,
                             .activation = attrs.activation,
                             .accumulate = attrs.accumulate,
                             .independent_rows = attrs.independent_rows});
    return true;
  }

  bool lookup(const Node& node) {
    const Node* table = dequantized(node.in[0]);
    if (!table) return false;
    map(node, kQuantizedEmbedding, {rewriter_[table->in[0]], rewriter_[node.in[1]]}, table->attrs);
    return true;
  }

  void map(const Node& node, const OpDef& op, const std::vector<Tensor>& in, const Attrs& attrs) {
    rewriter_.map(node.out[0], rewriter_.add(node, op, in, attrs)[0]);
  }

  const Matcher matcher_;
  Rewriter rewriter_;
};

}  // namespace

Graph fuse_quantized(const Graph& graph) { return Quantized(graph).run(); }

}  // namespace linnet

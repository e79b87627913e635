// Where lookups are multiplied by a number (the square root of the width), so are the gradients before the table's
// gradient adds them up. A GPU multiplies the sums instead: a launch less, and no copy of the gradients.
#include <array>
#include <optional>

#include "engine/ops/embedding/embedding.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

// c where the expression is x * c.
std::optional<double> constant_factor(const Expression& expression) {
  const std::vector<Instruction>& code = expression.code;
  if (code.size() != 3 || code[2].function != Scalar::kMul || code[2].a == code[2].b) return {};
  for (const size_t constant : {0, 1})
    if (code[constant].function == Scalar::kConstant && code[1 - constant].function == Scalar::kInput)
      return code[constant].constant;
  return {};
}

class EmbeddingScale {
 public:
  EmbeddingScale(const Graph& graph, const Backend& backend) : graph_(graph), backend_(backend), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes())
      if (!fuse(node)) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  bool fuse(const Node& node) {
    if (!is(node, kEmbeddingGrad) || node.attrs.as<EmbeddingGradAttrs>().scale != 1) return false;
    const Node* product = rewriter_.lone_producer(node.in[0]);
    if (!is(product, kPointwise) || product->in.size() != 1) return false;
    const auto factor = constant_factor(without_rounding(product->attrs.as<PointwiseAttrs>().expression));
    if (!factor) return false;
    Node scaled = node;
    EmbeddingGradAttrs attrs = node.attrs.as<EmbeddingGradAttrs>();
    attrs.scale = *factor;
    scaled.attrs = attrs;
    std::vector<TensorType> types;
    for (const ValueId id : node.in) types.push_back(graph_.value(id).type);
    if (!has_fast_kernel(scaled, types, std::array{graph_.value(node.out[0]).type}, backend_)) return false;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[0] = rewriter_.operands(*product)[0];
    rewriter_.map(node.out[0], rewriter_.add(node, kEmbeddingGrad, in, attrs)[0]);
    return true;
  }

  const Graph& graph_;
  const Backend& backend_;
  Rewriter rewriter_;
};

}  // namespace

Graph fuse_embedding_scale(const Graph& graph, const Backend& backend) { return EmbeddingScale(graph, backend).run(); }

}  // namespace linnet

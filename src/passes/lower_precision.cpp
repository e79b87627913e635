// Matrix products in bf16 or TF32: operands are rounded on their way in, sums and everything else stay fp32.
// Parameters, gradients and the optimizer's states are never stored in less than fp32.
#include "ir/op.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {

namespace {

Attrs lower(const Node& node, Precision precision, Precision attention) {
  switch (node.op->product) {
    case ProductKind::kNone:
      break;
    case ProductKind::kMatrix:
      return node.op->with_precision(node.attrs, precision);
    case ProductKind::kAttention:
      return node.op->with_precision(node.attrs, attention);
  }
  return node.attrs;
}

}  // namespace

Graph lower_precision(const Graph& graph, Precision precision, Precision attention) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const std::vector<Tensor> out =
        rewriter.add(node, *node.op, rewriter.inputs_of(node), lower(node, precision, attention));
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

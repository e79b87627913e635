// Matrix products in bf16: operands are rounded on their way in, sums and everything else stay fp32. Parameters,
// gradients and the optimizer's states are never stored in less than fp32.
#include "ir/op.h"
#include "ops/matmul/matmul.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {

Graph lower_precision(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.op != &kMatmul) {
      rewriter.copy(node);
      continue;
    }
    MatmulAttrs attrs = node.attrs.as<MatmulAttrs>();
    attrs.precision = Precision::kBf16;
    const std::vector<Tensor> out = rewriter.add(node, kMatmul, rewriter.inputs_of(node), attrs);
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

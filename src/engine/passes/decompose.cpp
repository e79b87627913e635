#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op)) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!node.op->decompose || (keep && keep(*node.op))) {
      rewriter.copy(node);
      continue;
    }
    rewriter.graph().set_scope(node.scope);
    const std::vector<Tensor> out = node.op->decompose({rewriter.graph(), node, rewriter.inputs_of(node)});
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

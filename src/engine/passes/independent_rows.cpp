// Products of a decoding graph, whose rows belong to requests that do not know each other: what a request gets must not
// depend on how many others there are.
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

Graph independent_rows(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto change = node.op->with_independent_rows;
    const std::vector<Tensor> out =
        rewriter.add(node, *node.op, rewriter.inputs_of(node), change ? change(node.attrs) : node.attrs);
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

#include "engine/ops/collective/collective.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

Graph remove_dead_code(const Graph& graph) {
  std::vector<bool> live(static_cast<size_t>(graph.value_count()));
  for (const GraphOutput& output : graph.outputs()) live[static_cast<size_t>(output.value)] = true;
  for (const StateUpdate& update : graph.updates()) live[static_cast<size_t>(update.value)] = true;
  std::vector<bool> kept(static_cast<size_t>(graph.node_count()));
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    bool needed = false;
    for (ValueId out : node.out) needed = needed || live[static_cast<size_t>(out)];
    kept[static_cast<size_t>(id)] = needed;
    if (!needed) continue;
    for (ValueId in : node.in) live[static_cast<size_t>(in)] = true;
  }
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    if (!kept[static_cast<size_t>(id)]) continue;
    if (is(node, kShare))  // it has told the backward pass what it had to
      rewriter.map(node.out[0], rewriter[node.in[0]]);
    else
      rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace linnet

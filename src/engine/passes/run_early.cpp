#include <algorithm>
#include <numeric>

#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

Graph run_early(const Graph& graph, NodeId first) {
  // After which of the nodes before `first` each node comes.
  std::vector<NodeId> after(static_cast<size_t>(graph.node_count()));
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    NodeId& place = after[static_cast<size_t>(id)];
    place = id < first ? id : -1;
    if (id < first) continue;
    for (const ValueId in : graph.node(id).in)
      if (const NodeId producer = graph.value(in).producer; producer != kNone)
        place = std::max(place, after[static_cast<size_t>(producer)]);
  }
  // What has no operands stands before its first reader.
  for (NodeId id = first; id < graph.node_count(); ++id) {
    if (!graph.node(id).in.empty()) continue;
    NodeId place = graph.node_count();
    for (const Node& reader : graph.nodes()) {
      const bool reads = std::ranges::any_of(reader.in, [&](ValueId in) { return graph.value(in).producer == id; });
      if (reads) place = std::min(place, after[static_cast<size_t>(&reader - graph.nodes().data())]);
    }
    after[static_cast<size_t>(id)] = place;
  }
  std::vector<NodeId> order(after.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](NodeId id) { return after[static_cast<size_t>(id)]; });
  Rewriter rewriter(graph);
  for (const NodeId id : order) rewriter.copy(graph.node(id));
  return rewriter.finish();
}

}  // namespace linnet

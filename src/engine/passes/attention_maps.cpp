#include "engine/passes/attention_maps.h"

#include <algorithm>

#include "engine/ir/op.h"
#include "engine/ops/attention/attention.h"
#include "engine/passes/matcher.h"

namespace linnet {
namespace {

constexpr int kNoSequence = -1;

// Of each value the last sequence that it was computed from.
std::vector<int> last_sequences(const Graph& graph, std::span<const std::string> sequences) {
  std::vector<int> last(static_cast<size_t>(graph.value_count()), kNoSequence);
  for (size_t i = 0; i < sequences.size(); ++i)
    if (const auto input = graph.find_input(sequences[i])) last[static_cast<size_t>(*input)] = static_cast<int>(i);
  for (const Node& node : graph.nodes()) {
    int latest = kNoSequence;
    for (const ValueId in : node.in) latest = std::max(latest, last[static_cast<size_t>(in)]);
    for (const ValueId out : node.out) last[static_cast<size_t>(out)] = latest;
  }
  return last;
}

}  // namespace

std::vector<TracedAttention> add_attention_maps(Graph& graph, std::span<const std::string> sequences) {
  const std::vector<int> last = last_sequences(graph, sequences);
  std::vector<TracedAttention> found;
  const ScopeId scope = graph.scope();
  for (NodeId id = 0, count = graph.node_count(); id < count; ++id) {
    const Node node = graph.node(id);  // a copy: the graph grows below
    if (!is(node, kAttention)) continue;
    const int queries = last[static_cast<size_t>(node.in[0])], keys = last[static_cast<size_t>(node.in[1])];
    if (queries == kNoSequence || keys == kNoSequence) continue;
    std::vector<Tensor> in;
    for (const ValueId value : node.in) in.push_back({&graph, value});
    graph.set_scope(node.scope);
    const std::string output = "attention." + std::to_string(found.size());
    graph.output(output, attention_probabilities({graph, node, in}));
    found.push_back({output, graph.scope_path(node.scope), static_cast<size_t>(queries), static_cast<size_t>(keys)});
  }
  graph.set_scope(scope);
  return found;
}

}  // namespace linnet

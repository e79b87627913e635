#include "engine/passes/matcher.h"

namespace linnet {

bool is(const Node& node, const OpDef& op) { return node.op == &op; }

ValueId other_operand(const Node& node, ValueId one) { return node.in[node.in[0] == one ? 1 : 0]; }

Matcher::Matcher(const Graph& graph) : graph_(graph), readers_(static_cast<size_t>(graph.value_count())) {
  for (NodeId id = 0; id < graph.node_count(); ++id)
    for (const ValueId in : graph.node(id).in) readers_[static_cast<size_t>(in)].push_back(id);
  for (const GraphOutput& output : graph.outputs())
    readers_[static_cast<size_t>(output.value)].push_back(graph.node_count());
  for (const StateUpdate& update : graph.updates())
    readers_[static_cast<size_t>(update.value)].push_back(graph.node_count());
}

const Node* Matcher::producer(ValueId value) const {
  const NodeId id = graph_.value(value).producer;
  return id == kNone ? nullptr : &graph_.node(id);
}

const Node* Matcher::one_reader(ValueId value) const {
  if (!has_one_reader(value)) return nullptr;
  const NodeId id = readers(value).front();
  return id < graph_.node_count() ? &graph_.node(id) : nullptr;
}

bool Matcher::is_sum(const Node& node) const {
  return algebra_of(node) == Algebra::kAdd && node.in[0] != node.in[1] &&
         graph_.value(node.in[0]).type == graph_.value(node.in[1]).type;
}

}  // namespace linnet

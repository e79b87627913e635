// What patterns of a rewrite are made of: which op computes a value, who reads it, whether a node is a sum. The only
// place in passes/ that compares ops; facts that hold for many ops are fields of OpDef (engine/ir/op.h).
#pragma once
#include <span>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace linnet {

bool is(const Node& node, const OpDef& op);
inline bool is(const Node* node, const OpDef& op) { return node && is(*node, op); }

// The operand of a node with two operands that is not `one`.
ValueId other_operand(const Node& node, ValueId one);

class Matcher {
 public:
  // The graph outlives the matcher and does not change.
  explicit Matcher(const Graph& graph);

  // The node that computes the value; nullptr for an input of the graph.
  const Node* producer(ValueId value) const;
  // The nodes that read the value, in order, once for each operand; node_count() stands for an output of the graph or
  // the new value of a state.
  std::span<const NodeId> readers(ValueId value) const { return readers_[static_cast<size_t>(value)]; }
  bool has_one_reader(ValueId value) const { return readers(value).size() == 1; }
  // The one node that reads the value; nullptr when there are several, or when the value leaves the graph.
  const Node* one_reader(ValueId value) const;
  // x + y for two different values of the same type: neither is broadcast.
  bool is_sum(const Node& node) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // by value
};

}  // namespace linnet

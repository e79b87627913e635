// How a pass rewrites: it walks the old graph in order and builds a new one, mapping values as it goes. Graphs are
// never changed in place, so a pass cannot leave one half rewritten.
#pragma once
#include <set>

#include "engine/ir/graph.h"

namespace linnet {

class Rewriter {
 public:
  // Declares the old graph's inputs in the new one, but for those in `replaced`, which the caller maps before they are
  // read.
  explicit Rewriter(const Graph& old, const std::set<std::string>& replaced = {});

  const Graph& old() const { return old_; }
  Graph& graph() { return new_; }

  // The new value that stands for an old one.
  Tensor operator[](ValueId old_value) const { return map_[static_cast<size_t>(old_value)]; }
  void map(ValueId old_value, Tensor new_value) { map_[static_cast<size_t>(old_value)] = new_value; }
  std::vector<Tensor> inputs_of(const Node& node) const;

  // For joining a node with what feeds it: the new graph's node that computes the value which stands for `old_value`,
  // when that value has a single reader. nullptr otherwise. Valid until the next add().
  const Node* lone_producer(ValueId old_value) const;
  // The operands of a node of the new graph.
  std::vector<Tensor> operands(const Node& new_node);

  // Appends a node in the place (source line, module) of `like`.
  std::vector<Tensor> add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs);
  // Appends `like` with other operands and its results stored as `types` say (Graph::add_stored).
  std::vector<Tensor> add_stored(const Node& like, std::span<const Tensor> in, std::span<const TensorType> types);
  void copy(const Node& node);  // as it is, results stored as they were
  Graph finish();               // maps outputs and updates

 private:
  const Graph& old_;
  Graph new_;
  std::vector<Tensor> map_;
  std::vector<int> uses_;  // of the old graph's values
};

}  // namespace linnet

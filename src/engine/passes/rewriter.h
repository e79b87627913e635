// What rewrites of graphs are made of: a Matcher, which says what computes a value and who reads it, and a Rewriter,
// which walks the old graph in order and builds a new one, mapping values as it goes. Graphs are never changed in
// place, so a pass cannot leave one half rewritten. Facts that hold for many ops are fields of OpDef (engine/ir/op.h).
#pragma once
#include <set>
#include <span>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/kernels/gemm/activation.h"
#include "engine/kernels/pointwise/expression.h"
#include "engine/ops/kernel.h"

namespace linnet {

// The operand of a node with two operands that is not `one`.
ValueId other_operand(const Node& node, ValueId one);

// Whether the results are other names of the operand, or of parts of it.
inline bool renames(const Node& node) {
  return algebra_of(node) == Algebra::kReshape || algebra_of(node) == Algebra::kSplit;
}

// What the value is a reshape of, or the value itself.
ValueId before_reshapes(const Graph& graph, ValueId value);

class Matcher {
 public:
  // The graph outlives the matcher and does not change.
  explicit Matcher(const Graph& graph);

  // The node that computes the value; nullptr for an input of the graph.
  const Node* producer(ValueId value) const { return producer_of(graph_, value); }
  // nullptr where it is a node of another op.
  const Node* producer(ValueId value, const OpDef& op) const {
    const Node* node = producer(value);
    return is(node, op) ? node : nullptr;
  }
  // The nodes that read the value, in order, once for each operand; node_count() stands for an output of the graph or
  // the new value of a state.
  std::span<const NodeId> readers(ValueId value) const { return readers_[value]; }
  bool has_one_reader(ValueId value) const { return readers(value).size() == 1; }
  // The one node that reads the value; nullptr when there are several, or when the value leaves the graph.
  const Node* one_reader(ValueId value) const;
  // x + y for two different values of the same type: neither is broadcast.
  bool is_sum(const Node& node) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // by value
};

class Rewriter {
 public:
  // Declares the old graph's inputs in the new one, but for those in `replaced`, which the caller maps before they are
  // read.
  explicit Rewriter(const Graph& old, const std::set<std::string>& replaced = {});

  const Graph& old() const { return old_; }
  Graph& graph() { return new_; }

  // The new value that stands for an old one.
  Tensor operator[](ValueId old_value) const { return map_[old_value]; }
  void map(ValueId old_value, Tensor new_value) { map_[old_value] = new_value; }
  std::vector<Tensor> inputs_of(const Node& node) const;

  // For joining a node with what feeds it: the new graph's node that computes the value which stands for `old_value`,
  // when that value has a single reader. nullptr otherwise. Valid until the next add().
  const Node* lone_producer(ValueId old_value) const;
  // nullptr where it is a node of another op.
  const Node* lone_producer(ValueId old_value, const OpDef& op) const {
    const Node* node = lone_producer(old_value);
    return is(node, op) ? node : nullptr;
  }
  // The operands of a node of the new graph.
  std::vector<Tensor> operands(const Node& new_node);

  // Appends a node in the place (source line, module) of `like`.
  std::vector<Tensor> add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs);
  // Appends `like` with other operands and its results stored as `types` say (Graph::add_stored).
  std::vector<Tensor> add_stored(const Node& like, std::span<const Tensor> in, std::span<const TensorType> types);
  // Appends a node in the place of `node`, for whose results its first ones stand. Returns all of them.
  std::vector<Tensor> replace(const Node& node, const OpDef& op, std::span<const Tensor> in, Attrs attrs);
  void copy(const Node& node);  // as it is, results stored as they were
  Graph finish();               // maps outputs and updates

 private:
  void map_results(const Node& node, std::span<const Tensor> out);

  const Graph& old_;
  Graph new_;
  std::vector<Tensor> map_;
  std::vector<int> uses_;  // of the old graph's values
};

// A pass that puts nodes in the place of others.
class Fusion {
 public:
  explicit Fusion(const Graph& graph, const Backend& backend = cpu_backend())
      : graph_(graph), matcher_(graph), rewriter_(graph), backend_(backend) {}
  virtual ~Fusion() = default;
  // Calls take(node) for the nodes in order, but for those whose results stand for something already. Leaves out what
  // nothing depends on any more.
  Graph run();

 protected:
  // False: the node is copied as it is.
  virtual bool take(const Node& node) = 0;

  NodeId id_of(const Node& node) const { return static_cast<NodeId>(&node - graph_.nodes().data()); }
  // Whether the backend has a kernel for the op with these operands and the results of `node`.
  bool has_kernel(const Node& node, const OpDef& op, Attrs attrs, std::span<const Tensor> in) const;
  // `producer`, of the new graph, takes in the node that reads it and stands for both, with one more operand.
  bool take_in(const Node& node, const Node& producer, Tensor operand, Attrs attrs);

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  const Backend& backend_;
};

// An activation function as pointwise nodes compute it and its gradient.
struct TracedActivation {
  GemmActivation kind;
  Expression value;
  Expression gradient = {};  // empty: products do not multiply by it
  size_t aux = 0, dy = 0;    // operands of the gradient
};
const std::vector<TracedActivation>& traced_activations();  // ReLU first

}  // namespace linnet

// A Matcher finds what computes a value and who reads it. A Rewriter builds a new graph from the old one in order, so
// that no pass can leave a graph half rewritten. Facts about many ops are fields of OpDef (engine/ir/op.h).
#pragma once
#include <set>
#include <span>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/pointwise/expression.h"
#include "engine/ops/kernel.h"

namespace linnet {
ValueId other_operand(const Node& node, ValueId one);  // the other operand of a node with two

ValueId before_reshapes(const Graph& graph, ValueId value);  // the value without reshapes

// Appends what computes `results`, and the inputs that it reads, to an empty graph. Returns the new values by old ones.
std::vector<Tensor> copy_computation(const Graph& graph, std::span<const ValueId> results, Graph& copy);

class Matcher {
 public:
  explicit Matcher(const Graph& graph);  // the graph outlives it and does not change

  // The node that computes the value; nullptr for an input of the graph.
  const Node* producer(ValueId value) const { return producer_of(graph_, value); }
  // nullptr for nodes of another op.
  const Node* producer(ValueId value, const OpDef& op) const { return node_if(producer(value), op); }
  // The nodes that read the value, in order, once per operand; node_count() stands for results of the graph.
  std::span<const NodeId> readers(ValueId value) const { return readers_[value]; }
  bool has_one_reader(ValueId value) const { return readers(value).size() == 1; }
  // The only node that reads the value; nullptr if there are several, or the value leaves the graph.
  const Node* one_reader(ValueId value) const;
  bool is_sum(const Node& node) const;  // x + y of two values of equal type

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // by value
};

class Rewriter {
 public:
  // Declares the old graph's inputs in the new one. The caller must map those in `replaced` before they are read.
  explicit Rewriter(const Graph& old, const std::set<std::string>& replaced = {});

  const Graph& old() const { return old_; }
  Graph& graph() { return new_; }

  Tensor operator[](ValueId old_value) const { return map_[old_value]; }  // the new value for an old one
  void map(ValueId old_value, Tensor new_value) { map_[old_value] = new_value; }
  void map_results(const Node& node, std::span<const Tensor> out);  // of the old graph's node, to as many new values
  std::vector<Tensor> inputs_of(const Node& node) const;

  // The new graph's node for `old_value`, to join with its only reader; else nullptr. Invalidated by add().
  const Node* lone_producer(ValueId old_value) const;
  // nullptr for nodes of another op.
  const Node* lone_producer(ValueId old_value, const OpDef& op) const { return node_if(lone_producer(old_value), op); }
  std::vector<Tensor> operands(const Node& new_node);  // of a node of the new graph

  // Appends a node with the source line and module of `like`.
  std::vector<Tensor> add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs);
  // Appends `like` with other operands, and results stored as `types` (Graph::add_stored).
  std::vector<Tensor> add_stored(const Node& like, std::span<const Tensor> in, std::span<const TensorType> types);
  // Appends a node in place of `node`, whose results become the new node's first ones. Returns all results.
  std::vector<Tensor> replace(const Node& node, const OpDef& op, std::span<const Tensor> in, Attrs attrs);
  void copy(const Node& node);  // as it is, results stored as they were
  Graph finish();               // maps outputs and updates

 private:
  const Graph& old_;
  Graph new_;
  std::vector<Tensor> map_;
  std::vector<int> uses_;  // of the old graph's values
};

class Fusion {
 public:
  explicit Fusion(const Graph& graph, const Backend& backend = cpu_backend())
      : graph_(graph), matcher_(graph), rewriter_(graph), backend_(backend) {}
  virtual ~Fusion() = default;
  // Calls take(node) for the nodes in order, except those that were replaced already. Removes dead nodes.
  Graph run();

 protected:
  virtual bool take(const Node& node) = 0;  // returns false to have the node copied as it is

  NodeId id_of(const Node& node) const { return static_cast<NodeId>(&node - graph_.nodes().data()); }
  // Whether the backend has a kernel for the op with these operands and the results of `node`.
  bool has_kernel(const Node& node, const OpDef& op, Attrs attrs, std::span<const Tensor> in) const;
  // Fuses `node` into `producer` (of the new graph), which gets another operand and replaces both.
  bool take_in(const Node& node, const Node& producer, Tensor operand, Attrs attrs);

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  const Backend& backend_;
};

// An activation function and its gradient as pointwise nodes compute them.
struct TracedActivation {
  GemmActivation kind;
  Expression value;
  Expression gradient = {};  // empty: products do not multiply by it
  size_t aux = 0, dy = 0;    // operands of the gradient
};
const std::vector<TracedActivation>& traced_activations();  // ReLU first
}  // namespace linnet

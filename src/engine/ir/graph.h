// The graph of a model: nodes in topological order, each value written once (SSA). The graph knows no concrete op; it
// calls shape inference through OpDef. Every node keeps the source line and the module path that made it, for errors.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "base/functions.h"
#include "engine/ir/attrs.h"
#include "engine/ir/tensor.h"

namespace linnet {
struct OpDef;

using NodeId = int32_t;

// A value without memory of its own: element (i, j, ...) is element offset + i*strides[0] + j*strides[1] + ... of
// `base`. Only the views pass makes these; before it every value is dense.
struct View {
  ValueId base;
  int64_t offset;  // elements
  Shape strides;   // elements, one per axis
};

struct Value {
  TensorType type;
  NodeId producer = kNone;  // kNone: an input of the graph
  int output = 0;           // which output of its producer
  std::optional<View> view;
};

struct Node {
  const OpDef* op;
  Attrs attrs;
  std::vector<ValueId> in, out;
  SourceLine where;
  ScopeId scope;
};

// A plan decides by the name where an input's bytes come from (engine/plan/store.h).
struct GraphInput {
  std::string name;
  ValueId value;
};

struct GraphOutput {
  std::string name;
  ValueId value;
};

// After the graph has run, input `state` holds `value`.
struct StateUpdate {
  ValueId state;
  ValueId value;
};

// A number unique in the process (Tensor::stamp), alive while the graph object lives and is not moved from: both sides
// of a move get new numbers, as tensors point to the object.
class GraphStamp {
 public:
  GraphStamp();
  GraphStamp(const GraphStamp&) : GraphStamp() {}
  GraphStamp(GraphStamp&& other);
  GraphStamp& operator=(GraphStamp&& other);
  ~GraphStamp();
  uint32_t number() const { return number_; }
  static bool is_alive(uint32_t number);

 private:
  uint32_t number_;
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph clone() const { return Graph(*this); }  // ids stay the same

  // Appends a node and infers its types. Throws Error(kShape) with "file:line: op: problem (in module.path)".
  std::vector<Tensor> add(const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where);
  Tensor add_one(const OpDef& op, std::span<const Tensor> in, Attrs attrs,
      SourceLine where);  // for ops with one output
  // Without inference, once storage types are chosen: `types` are what it would give, some in bf16.
  std::vector<Tensor> add_stored(
      const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where, std::span<const TensorType> types);

  Tensor input(std::string name, TensorType type);  // the same name twice is the same value
  void output(std::string name, Tensor tensor);
  void update(Tensor state, Tensor value);

  ScopeId enter_scope(const std::string& path);  // enters a module path; returns the scope before it, for set_scope()
  ScopeId scope() const { return scope_; }
  void set_scope(ScopeId scope) { scope_ = scope; }
  // While set, nodes get this source line: a gradient has the line of its forward node.
  void set_origin(std::optional<SourceLine> where) { origin_ = where; }
  const std::string& scope_path(ScopeId scope) const { return scopes_[scope]; }
  void copy_scopes(const Graph& other) { scopes_ = other.scopes_; }

  const Node& node(NodeId id) const { return nodes_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  NodeId node_count() const { return static_cast<NodeId>(nodes_.size()); }
  ValueId value_count() const { return static_cast<ValueId>(values_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const std::vector<StateUpdate>& updates() const { return updates_; }
  std::optional<ValueId> find_input(const std::string& name) const;

  void set_view(ValueId value, View view);  // the views pass

  std::string where_text(NodeId id) const;  // "gpt.cpp:57: add (in h.3.mlp)"

 private:
  Graph(const Graph&) = default;  // tensors point to one graph
  std::vector<Tensor> append(Node node, std::span<const TensorType> out_types);
  Tensor tensor(ValueId id) { return {this, id, stamp_.number()}; }

  GraphStamp stamp_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::vector<StateUpdate> updates_;
  std::vector<std::string> scopes_{""};
  ScopeId scope_ = 0;
  std::optional<SourceLine> origin_;
};

// The value that owns the memory of `id`, through any chain of views, and where in it.
struct Root {
  ValueId value;
  int64_t offset;  // elements
  Shape strides;
};
Root root_of(const Graph& graph, ValueId id);

std::vector<ValueId> results_of(const Graph& graph);  // outputs and the new values of states
// By node: whether any of these values depends on it.
std::vector<bool> ancestors_of(const Graph& graph, std::span<const ValueId> values);
// The node that computes a value; null for an input of the graph. Invalidated by the next node.
const Node* producer_of(const Graph& graph, ValueId value);
inline const Node* producer_of(Tensor x) { return producer_of(*x.graph, x.id); }

// How many times each value is read, by nodes, as an output, or as the new value of a state.
std::vector<int> count_uses(const Graph& graph);

// Checks the graph's invariants (topological order, one producer, types that match inference, at most one update of a
// state). Throws Error(kInternal).
void verify(const Graph& graph);

// " (in h.0.mlp)" for messages; "" of a module that is the whole model.
std::string in_scope(const std::string& path);

// One line a node: %12 = matmul(%3, %7) {trans_b} : f32[8, 16]   # gpt.cpp:57: matmul (in h.0.mlp)
std::string dump(const Graph& graph);

struct NodeTypes {
  std::vector<TensorType> in, out;
};
inline std::vector<TensorType> types_of(const Graph& graph, std::span<const ValueId> values) {
  return mapped(values, [&](ValueId id) { return graph.value(id).type; });
}
inline NodeTypes types_of(const Graph& graph, const Node& node) {
  return {types_of(graph, node.in), types_of(graph, node.out)};
}
}  // namespace linnet

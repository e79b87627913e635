#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"
#include "engine/passes/tensor_parallel.h"

namespace linnet {
namespace {
class Splitter {
 public:
  Splitter(const Graph& graph, FunctionRef<std::string(size_t)> name) : graph_(graph), name_(name) {
    for (NodeId id = 0; id < graph.node_count(); ++id)
      if (is(graph.node(id), kStageOutput)) end_ = id;
    if (end_ == kNone) fail_internal("a stage's graph does not tell where its forward pass ends");
  }

  SplitStage run() {
    in_forward_ = ancestors_of(graph_, forward_values());
    build_backward();
    build_forward();
    split_.forward = remove_dead_code(split_.forward);
    return std::move(split_);
  }

 private:
  // Values for the next stage's inputs. Passes may have changed the outputs' types from the operands' of the last node.
  std::vector<ValueId> forward_values() const {
    const Node& end = graph_.node(end_);
    std::vector<ValueId> values(end.in.begin(), end.in.begin() + std::ssize(end.in) / 2);
    for (const GraphOutput& output : graph_.outputs())
      if (is_of_forward_output(output)) values.push_back(output.value);
    return values;
  }

  void build_backward() {
    backward_.resize(graph_.value_count());
    Graph& graph = split_.backward;
    graph.copy_scopes(graph_);
    for (NodeId id = 0; id < graph_.node_count(); ++id)
      if (!in_forward_[id]) add_backward(id);
    for (const GraphOutput& output : graph_.outputs())
      if (!is_of_forward_output(output)) graph.output(output.name, backward(output.value));
    for (const StateUpdate& update : graph_.updates()) graph.update(backward(update.state), backward(update.value));
  }

  bool is_of_forward_output(const GraphOutput& output) const {
    const Node& end = graph_.node(end_);
    for (size_t i = 0; i < end.in.size() / 2; ++i)
      if (output.name == stage_output_name(i)) return true;
    return false;
  }

  void add_backward(NodeId id) {
    const Node& node = graph_.node(id);
    if (id == end_)  // the loss that it stands for is zero
      backward_[node.out[0]] = fill(split_.backward, graph_.value(node.out[0]).type, 0, node.where);
    else append(node, split_.backward, mapped(node.in, [&](ValueId operand) { return backward(operand); }), backward_);
  }

  // Adds a node of the stage's graph to one of the two, where its results are noted in `values`.
  void append(const Node& node, Graph& graph, const std::vector<Tensor>& in, std::vector<Tensor>& values) const {
    graph.set_scope(node.scope);
    const std::vector<Tensor> out = graph.add_stored(*node.op, in, node.attrs, node.where, types_of(graph_, node).out);
    for (size_t i = 0; i < out.size(); ++i) values[node.out[i]] = out[i];
  }

  // A value that the backward pass reads. Parts and reshapes of a value, and constants, are made again, so that each
  // value is saved once, and parameters never.
  Tensor backward(ValueId value) {
    Tensor& found = backward_[value];
    if (found.defined()) return found;
    Graph& graph = split_.backward;
    const TensorType& type = graph_.value(value).type;
    const NodeId producer = graph_.value(value).producer;
    if (producer == kNone) return found = graph.input(input_name(value), type);
    if (renames(graph_.node(producer)) || graph_.node(producer).in.empty()) {
      add_backward(producer);
      return backward_[value];
    }
    const std::string name = name_(saved_.size());
    saved_.push_back(value);
    split_.saved.emplace_back(name, type);
    return found = graph.input(name, type);
  }

  std::string input_name(ValueId value) const {
    for (const GraphInput& input : graph_.inputs())
      if (input.value == value) return input.name;
    fail_internal("a value of a graph has neither a node nor a name");
  }

  void build_forward() {
    Graph& graph = split_.forward;
    graph.copy_scopes(graph_);
    std::vector<Tensor> values(graph_.value_count());
    const auto use = [&](ValueId value) {
      Tensor& found = values[value];
      if (!found.defined()) found = graph.input(input_name(value), graph_.value(value).type);
      return found;
    };
    for (NodeId id = 0; id < graph_.node_count(); ++id)
      if (in_forward_[id]) append(graph_.node(id), graph, mapped(graph_.node(id).in, use), values);
    for (const GraphOutput& output : graph_.outputs())
      if (is_of_forward_output(output)) graph.output(output.name, use(output.value));
    for (size_t i = 0; i < saved_.size(); ++i)
      graph.update(graph.input(split_.saved[i].first, split_.saved[i].second), values[saved_[i]]);
  }

  const Graph& graph_;
  const FunctionRef<std::string(size_t)> name_;
  NodeId end_ = kNone;
  std::vector<bool> in_forward_;  // by node
  std::vector<Tensor> backward_;  // by value, in the backward graph; undefined: nothing has read it yet
  std::vector<ValueId> saved_;
  SplitStage split_;
};
}  // namespace

SplitStage split_stage(const Graph& graph, FunctionRef<std::string(size_t)> name) {
  return Splitter(graph, name).run();
}
}  // namespace linnet

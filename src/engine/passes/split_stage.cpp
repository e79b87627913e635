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
    for (size_t i = 0; i < graph_.node(end_).in.size() / 2; ++i)
      if (output.name == stage_output_name(i)) return true;
    return false;
  }

  void add_backward(NodeId id) {
    const Node& node = graph_.node(id);
    Graph& graph = split_.backward;
    std::vector<Tensor> out;
    if (id == end_) {  // the loss that it stands for is zero
      out = {fill(graph, graph_.value(node.out[0]).type, 0, node.where)};
    } else {
      const std::vector<Tensor> in = mapped(node.in, [&](ValueId operand) { return backward(operand); });
      graph.set_scope(node.scope);
      out = graph.add_stored(*node.op, in, node.attrs, node.where, types_of(graph_, node.out));
    }
    for (size_t i = 0; i < out.size(); ++i) backward_[node.out[i]] = out[i];
  }

  // A value that the backward pass reads. Parts and reshapes of a value, and constants, are made again, so that each
  // value is saved once, and parameters never.
  Tensor backward(ValueId value) {
    Tensor& found = backward_[value];
    if (found.defined()) return found;
    Graph& graph = split_.backward;
    const TensorType& type = graph_.value(value).type;
    const NodeId producer = graph_.value(value).producer;
    if (producer == kNone)
      return found = graph.input(find_item(graph_.inputs(), value, &GraphInput::value)->name, type);
    if (renames(graph_.node(producer)) || graph_.node(producer).in.empty()) {
      add_backward(producer);
      return backward_[value];
    }
    const std::string name = name_(saved_.size());
    saved_.push_back(value);
    split_.saved.emplace_back(name, type);
    return found = graph.input(name, type);
  }

  void build_forward() {
    Graph& graph = split_.forward;
    const std::vector<Tensor> values = copy_computation(graph_, forward_values(), graph);
    for (const GraphOutput& output : graph_.outputs())
      if (is_of_forward_output(output)) graph.output(output.name, values[output.value]);
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

#include "engine/ir/graph.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "base/error.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {

struct LiveGraphs {
  std::mutex mutex;
  std::unordered_set<uint32_t> numbers;
  uint32_t last = 0;

  uint32_t add() {
    const std::lock_guard lock(mutex);
    do ++last;  // 0 means that a tensor is not checked
    while (last == 0 || !numbers.insert(last).second);
    return last;
  }
  void remove(uint32_t number) {
    const std::lock_guard lock(mutex);
    numbers.erase(number);
  }
};

// Never destroyed: graphs of static storage may be destroyed after it.
LiveGraphs& live_graphs() {
  static auto* live = new LiveGraphs;
  return *live;
}

std::string in_scope(const std::string& path) { return path.empty() ? "" : " (in " + path + ")"; }

}  // namespace

Graph Graph::clone() const {
  Graph copy;
  copy.nodes_ = nodes_;
  copy.values_ = values_;
  copy.inputs_ = inputs_;
  copy.outputs_ = outputs_;
  copy.updates_ = updates_;
  copy.scopes_ = scopes_;
  copy.scope_ = scope_;
  return copy;
}

GraphStamp::GraphStamp() : number_(live_graphs().add()) {}

GraphStamp::GraphStamp(GraphStamp&& other) : number_(live_graphs().add()) {
  live_graphs().remove(other.number_);
  other.number_ = live_graphs().add();
}

GraphStamp& GraphStamp::operator=(GraphStamp&& other) {
  for (GraphStamp* stamp : {this, &other}) {
    live_graphs().remove(stamp->number_);
    stamp->number_ = live_graphs().add();
  }
  return *this;
}

GraphStamp::~GraphStamp() { live_graphs().remove(number_); }

bool GraphStamp::is_alive(uint32_t number) {
  LiveGraphs& live = live_graphs();
  const std::lock_guard lock(live.mutex);
  return live.numbers.contains(number);
}

TensorType Tensor::type() const {
  if (!graph) fail_user("an undefined tensor was used; a Tensor gets its value from an input or from an op");
  if (stamp != 0 && !GraphStamp::is_alive(stamp))
    fail_user("a tensor was used after its recording had ended; keep no tensors between calls of the loss function");
  return graph->value(id).type;
}

std::vector<Tensor> Graph::add(const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where) {
  if (origin_) where = *origin_;
  const auto shape_error = [&](const std::string& problem) {
    throw Error(ErrorKind::kShape, where.text() + ": " + op.name + ": " + problem + in_scope(scope_path(scope_)));
  };
  Node node{&op, std::move(attrs), {}, {}, where, scope_};
  std::vector<TensorType> types;
  for (const Tensor& tensor : in) {
    if (!tensor.defined()) shape_error("an operand is undefined");
    if (tensor.stamp != 0 && !GraphStamp::is_alive(tensor.stamp))
      shape_error("an operand is a tensor whose recording has ended");
    if (tensor.graph != this || (tensor.stamp != 0 && tensor.stamp != stamp_.number()))
      shape_error("an operand belongs to another graph");
    node.in.push_back(tensor.id);
    types.push_back(tensor.type());
  }
  std::vector<TensorType> out_types;
  try {
    out_types = op.infer({node.attrs, types});
  } catch (const ShapeProblem& problem) {
    shape_error(problem.what());
  }
  return append(std::move(node), out_types);
}

std::vector<Tensor> Graph::append(Node node, std::span<const TensorType> out_types) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < out_types.size(); ++i) {
    values_.push_back({out_types[i], node_count(), static_cast<int>(i), std::nullopt});
    node.out.push_back(value_count() - 1);
    out.push_back(tensor(value_count() - 1));
  }
  nodes_.push_back(std::move(node));
  return out;
}

std::vector<Tensor> Graph::add_stored(const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where,
                                      std::span<const TensorType> types) {
  Node node{&op, std::move(attrs), {}, {}, where, scope_};
  for (const Tensor& tensor : in) node.in.push_back(tensor.id);
  return append(std::move(node), types);
}

Tensor Graph::add_one(const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where) {
  return add(op, in, std::move(attrs), where).at(0);
}

Tensor Graph::input(std::string name, TensorType type) {
  if (const auto found = find_input(name)) {
    if (value(*found).type != type)
      throw Error(ErrorKind::kShape,
                  "input " + name + " is used both as " + value(*found).type.text() + " and as " + type.text());
    return tensor(*found);
  }
  values_.push_back({type, kNone, 0, std::nullopt});
  inputs_.push_back({std::move(name), value_count() - 1});
  return tensor(value_count() - 1);
}

void Graph::output(std::string name, Tensor tensor) { outputs_.push_back({std::move(name), tensor.id}); }

void Graph::update(Tensor state, Tensor new_value) {
  if (state.type() != new_value.type())
    fail_internal("a state of type " + state.type().text() + " is updated with " + new_value.type().text());
  updates_.push_back({state.id, new_value.id});
}

ScopeId Graph::enter_scope(const std::string& path) {
  const ScopeId previous = scope_;
  const auto found = std::find(scopes_.begin(), scopes_.end(), path);
  scope_ = static_cast<ScopeId>(found - scopes_.begin());
  if (found == scopes_.end()) scopes_.push_back(path);
  return previous;
}

std::optional<ValueId> Graph::find_input(const std::string& name) const {
  for (const GraphInput& input : inputs_)
    if (input.name == name) return input.value;
  return std::nullopt;
}

void Graph::set_view(ValueId id, View view) { values_[static_cast<size_t>(id)].view = view; }

std::string Graph::where_text(NodeId id) const {
  const Node& n = node(id);
  return n.where.text() + ": " + n.op->name + in_scope(scope_path(n.scope));
}

Root root_of(const Graph& graph, ValueId id) {
  const Value* value = &graph.value(id);
  Root root{id, 0, dense_strides(value->type.shape)};
  // A view of a view is made only of dense bases (verify() checks it), so offsets add up.
  if (value->view) root.strides = value->view->strides;
  while (value->view) {
    root.offset += value->view->offset;
    root.value = value->view->base;
    value = &graph.value(root.value);
  }
  return root;
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(static_cast<size_t>(graph.value_count()), 0);
  for (const Node& node : graph.nodes())
    for (ValueId id : node.in) ++uses[static_cast<size_t>(id)];
  for (const GraphOutput& output : graph.outputs()) ++uses[static_cast<size_t>(output.value)];
  for (const StateUpdate& update : graph.updates()) ++uses[static_cast<size_t>(update.value)];
  return uses;
}

}  // namespace linnet

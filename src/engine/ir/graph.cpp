#include "engine/ir/graph.h"
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_set>
#include "base/fail.h"
#include "base/text.h"
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

// Never destroyed: static graphs may be destroyed after it.
LiveGraphs& live_graphs() {
  static auto* live = new LiveGraphs;
  return *live;
}

std::string name_of(ValueId id) { return "%" + std::to_string(id); }

std::string value_text(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  std::string text = value.type.text();
  if (value.view)
    text += " view of " + name_of(value.view->base) + " at " + std::to_string(value.view->offset) + " strides " +
            value.view->strides.text();
  return text;
}

// Inference ignores storage in bf16.
TensorType widened(TensorType type) {
  if (type.dtype == DType::kBF16) type.dtype = DType::kF32;
  return type;
}

void verify_node(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::vector<TensorType> types;
  for (ValueId in : node.in) {
    if (in < 0 || in >= graph.value_count() || graph.value(in).producer >= id)
      fail_internal(graph.where_text(id), " reads a value that is not computed before it");
    types.push_back(widened(graph.value(in).type));
  }
  const auto expected = node.op->infer({node.attrs, types});
  if (expected.size() != node.out.size()) fail_internal(graph.where_text(id), " has the wrong number of outputs");
  for (size_t i = 0; i < expected.size(); ++i) {
    const Value& out = graph.value(node.out[i]);
    if (out.producer != id || out.output != static_cast<int>(i))
      fail_internal(graph.where_text(id), " has an output with another producer");
    if (widened(out.type) != widened(expected[i]))
      fail_internal(graph.where_text(id), " has type ", out.type.text(), ", inferred ", expected[i].text());
  }
}

void verify_view(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const View& view = *value.view;
  const Value& base = graph.value(view.base);
  const int64_t extent = strided_extent(value.type.shape, view.strides);
  if (extent > 0 && (view.offset < 0 || view.offset + extent > base.type.shape.elements()))
    fail_internal("value %", id, " is a view beyond its base");
  if (base.view && base.view->strides != dense_strides(base.type.shape))
    fail_internal("value %", id, " is a view of a strided view");
}

const char* intern(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> strings;
  const std::lock_guard lock(mutex);
  const auto found = strings.find(text);
  return (found != strings.end() ? found : strings.emplace(text).first)->c_str();
}
}  // namespace

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
  for (const Tensor& tensor : in) {
    if (!tensor.defined()) shape_error("an operand is undefined");
    if (tensor.stamp != 0 && !GraphStamp::is_alive(tensor.stamp))
      shape_error("an operand is a tensor whose recording has ended");
    if (tensor.graph != this || (tensor.stamp != 0 && tensor.stamp != stamp_.number()))
      shape_error("an operand belongs to another graph");
  }
  Node node{&op, std::move(attrs), mapped(in, &Tensor::id), {}, where, scope_};
  const std::vector<TensorType> types = mapped(in, &Tensor::type);
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

std::vector<Tensor> Graph::add_stored(
    const OpDef& op, std::span<const Tensor> in, Attrs attrs, SourceLine where, std::span<const TensorType> types) {
  return append({&op, std::move(attrs), mapped(in, &Tensor::id), {}, where, scope_}, types);
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
    fail_internal("a state of type ", state.type().text(), " is updated with ", new_value.type().text());
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
  const GraphInput* found = find_item(inputs_, name, &GraphInput::name);
  return found ? std::optional(found->value) : std::nullopt;
}

void Graph::set_view(ValueId id, View view) { values_[id].view = view; }

std::string in_scope(const std::string& path) { return path.empty() ? "" : " (in " + path + ")"; }

std::string Graph::where_text(NodeId id) const {
  const Node& n = node(id);
  return n.where.text() + ": " + n.op->name + in_scope(scope_path(n.scope));
}

Root root_of(const Graph& graph, ValueId id) {
  const Value* value = &graph.value(id);
  Root root{id, 0, dense_strides(value->type.shape)};
  // verify() checks that views have dense bases, so offsets add up.
  if (value->view) root.strides = value->view->strides;
  while (value->view) {
    root.offset += value->view->offset;
    root.value = value->view->base;
    value = &graph.value(root.value);
  }
  return root;
}

std::vector<ValueId> results_of(const Graph& graph) {
  std::vector<ValueId> results = mapped(graph.outputs(), &GraphOutput::value);
  for (const StateUpdate& update : graph.updates()) results.push_back(update.value);
  return results;
}

std::vector<bool> ancestors_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<bool> needed(graph.value_count()), found(graph.node_count());
  for (const ValueId value : values) needed[value] = true;
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    found[id] = std::ranges::any_of(node.out, [&](ValueId out) { return needed[out]; });
    if (found[id])
      for (const ValueId in : node.in) needed[in] = true;
  }
  return found;
}

const Node* producer_of(const Graph& graph, ValueId value) {
  const NodeId id = graph.value(value).producer;
  return id == kNone ? nullptr : &graph.node(id);
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.value_count(), 0);
  for (const Node& node : graph.nodes())
    for (ValueId id : node.in) ++uses[id];
  for (const ValueId id : results_of(graph)) ++uses[id];
  return uses;
}

std::string dump(const Graph& graph) {
  std::string text;
  for (const GraphInput& input : graph.inputs())
    text += name_of(input.value) + " = input " + input.name + " : " + value_text(graph, input.value) + "\n";
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    text += joined(node.out, ", ", name_of) + " = " + node.op->name + "(" + joined(node.in, ", ", name_of) + ")";
    if (const std::string attrs = node.attrs.text(); !attrs.empty()) text += " {" + attrs + "}";
    text += " : " + joined(node.out, ", ", [&](ValueId id) { return value_text(graph, id); });
    text += "   # " + graph.where_text(id) + "\n";
  }
  for (const GraphOutput& output : graph.outputs())
    text += "output " + output.name + " = " + name_of(output.value) + "\n";
  for (const StateUpdate& update : graph.updates())
    text += "update " + name_of(update.state) + " := " + name_of(update.value) + "\n";
  return text;
}

void verify(const Graph& graph) {
  for (NodeId id = 0; id < graph.node_count(); ++id) verify_node(graph, id);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.value(id).view) verify_view(graph, id);
  std::set<ValueId> updated;
  for (const StateUpdate& update : graph.updates()) {
    if (graph.value(update.state).producer != kNone) fail_internal("a value that is not an input is updated as state");
    if (!updated.insert(update.state).second) fail_internal("a state is updated twice");
  }
}

std::string SourceLine::text() const {
  const char* slash = std::strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

SourceLine intern_source_line(std::string_view file, uint32_t line, std::string_view function) {
  return {intern(file), line, intern(function)};
}
}  // namespace linnet

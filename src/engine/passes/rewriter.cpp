#include "engine/passes/rewriter.h"
#include "engine/passes/passes.h"

namespace linnet {
Rewriter::Rewriter(const Graph& old, const std::set<std::string>& replaced)
    : old_(old), map_(old.value_count()), uses_(count_uses(old)) {
  new_.copy_scopes(old);
  for (const GraphInput& input : old.inputs())
    if (!replaced.contains(input.name)) map(input.value, new_.input(input.name, old.value(input.value).type));
}

std::vector<Tensor> Rewriter::inputs_of(const Node& node) const {
  return mapped(node.in, [&](ValueId id) { return (*this)[id]; });
}

const Node* Rewriter::lone_producer(ValueId old_value) const {
  return uses_[old_value] == 1 ? producer_of((*this)[old_value]) : nullptr;
}

std::vector<Tensor> Rewriter::operands(const Node& new_node) {
  return mapped(new_node.in, [&](ValueId id) { return Tensor{&new_, id}; });
}

std::vector<Tensor> Rewriter::add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  new_.set_scope(like.scope);
  return new_.add(op, in, std::move(attrs), like.where);
}

std::vector<Tensor> Rewriter::add_stored(
    const Node& like, std::span<const Tensor> in, std::span<const TensorType> types) {
  new_.set_scope(like.scope);
  return new_.add_stored(*like.op, in, like.attrs, like.where, types);
}

void Rewriter::map_results(const Node& node, std::span<const Tensor> out) {
  for (size_t i = 0; i < node.out.size(); ++i) map(node.out[i], out[i]);
}

std::vector<Tensor> Rewriter::replace(const Node& node, const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  const std::vector<Tensor> out = add(node, op, in, std::move(attrs));
  map_results(node, out);
  return out;
}

void Rewriter::copy(const Node& node) {
  map_results(node, add_stored(node, inputs_of(node), types_of(old_, node.out)));
}

Graph Rewriter::finish() {
  for (const GraphOutput& output : old_.outputs()) new_.output(output.name, (*this)[output.value]);
  for (const StateUpdate& update : old_.updates()) new_.update((*this)[update.state], (*this)[update.value]);
  // Tensors point at the graph they were made in, so only ids are used from here on.
  return std::move(new_);
}

ValueId other_operand(const Node& node, ValueId one) { return node.in[node.in[0] == one ? 1 : 0]; }

Matcher::Matcher(const Graph& graph) : graph_(graph), readers_(graph.value_count()) {
  for (NodeId id = 0; id < graph.node_count(); ++id)
    for (const ValueId in : graph.node(id).in) readers_[in].push_back(id);
  for (const ValueId result : results_of(graph)) readers_[result].push_back(graph.node_count());
}

ValueId before_reshapes(const Graph& graph, ValueId value) {
  const Node* node = producer_of(graph, value);
  return node && algebra_of(*node) == Algebra::kReshape ? before_reshapes(graph, node->in[0]) : value;
}

std::vector<Tensor> copy_computation(const Graph& graph, std::span<const ValueId> results, Graph& copy) {
  const std::vector<bool> needed = ancestors_of(graph, results);
  std::vector<Tensor> values(graph.value_count());
  const auto use = [&](ValueId id) {
    if (!values[id].defined())
      values[id] = copy.input(find_item(graph.inputs(), id, &GraphInput::value)->name, graph.value(id).type);
    return values[id];
  };
  copy.copy_scopes(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    if (!needed[id]) continue;
    const Node& node = graph.node(id);
    const std::vector<Tensor> in = mapped(node.in, use);
    copy.set_scope(node.scope);
    const std::vector<Tensor> out = copy.add_stored(*node.op, in, node.attrs, node.where, types_of(graph, node.out));
    for (size_t i = 0; i < out.size(); ++i) values[node.out[i]] = out[i];
  }
  for (const ValueId id : results) use(id);
  return values;
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

Graph Fusion::run() {
  for (const Node& node : graph_.nodes())
    if (!rewriter_[node.out[0]].defined() && !take(node)) rewriter_.copy(node);
  return remove_dead_code(rewriter_.finish());
}

bool Fusion::take_in(const Node& node, const Node& producer, Tensor operand, Attrs attrs) {
  std::vector<Tensor> in = rewriter_.operands(producer);
  in.push_back(operand);
  rewriter_.map(node.out[0], rewriter_.add(producer, *producer.op, in, std::move(attrs))[0]);
  return true;
}

bool Fusion::has_kernel(const Node& node, const OpDef& op, Attrs attrs, std::span<const Tensor> in) const {
  Node made = node;
  made.op = &op, made.attrs = std::move(attrs);
  return has_fast_kernel(made, mapped(in, &Tensor::type), types_of(graph_, node.out), backend_);
}
}  // namespace linnet

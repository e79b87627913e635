#include "engine/passes/rewriter.h"

namespace linnet {

Rewriter::Rewriter(const Graph& old, const std::set<std::string>& replaced)
    : old_(old), map_(static_cast<size_t>(old.value_count())), uses_(count_uses(old)) {
  new_.copy_scopes(old);
  for (const GraphInput& input : old.inputs())
    if (!replaced.contains(input.name)) map(input.value, new_.input(input.name, old.value(input.value).type));
}

std::vector<Tensor> Rewriter::inputs_of(const Node& node) const {
  std::vector<Tensor> in;
  for (ValueId id : node.in) in.push_back((*this)[id]);
  return in;
}

const Node* Rewriter::lone_producer(ValueId old_value) const {
  if (uses_[static_cast<size_t>(old_value)] != 1) return nullptr;
  const NodeId producer = new_.value((*this)[old_value].id).producer;
  return producer == kNone ? nullptr : &new_.node(producer);
}

std::vector<Tensor> Rewriter::operands(const Node& new_node) {
  std::vector<Tensor> operands;
  for (ValueId id : new_node.in) operands.push_back({&new_, id});
  return operands;
}

std::vector<Tensor> Rewriter::add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  new_.set_scope(like.scope);
  return new_.add(op, in, std::move(attrs), like.where);
}

std::vector<Tensor> Rewriter::add_stored(const Node& like, std::span<const Tensor> in,
                                         std::span<const TensorType> types) {
  new_.set_scope(like.scope);
  return new_.add_stored(*like.op, in, like.attrs, like.where, types);
}

void Rewriter::copy(const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId out : node.out) types.push_back(old_.value(out).type);
  const std::vector<Tensor> out = add_stored(node, inputs_of(node), types);
  for (size_t i = 0; i < out.size(); ++i) map(node.out[i], out[i]);
}

Graph Rewriter::finish() {
  for (const GraphOutput& output : old_.outputs()) new_.output(output.name, (*this)[output.value]);
  for (const StateUpdate& update : old_.updates()) new_.update((*this)[update.state], (*this)[update.value]);
  // Tensors point at the graph they were made in; from here on only ids matter.
  return std::move(new_);
}

}  // namespace linnet

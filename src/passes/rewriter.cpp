#include "passes/rewriter.h"

namespace linnet {

Rewriter::Rewriter(const Graph& old) : old_(old), map_(static_cast<size_t>(old.value_count())) {
  new_.copy_scopes(old);
  for (const GraphInput& input : old.inputs()) map(input.value, new_.input(input.name, old.value(input.value).type));
}

std::vector<Tensor> Rewriter::inputs_of(const Node& node) const {
  std::vector<Tensor> in;
  for (ValueId id : node.in) in.push_back((*this)[id]);
  return in;
}

std::vector<Tensor> Rewriter::add(const Node& like, const OpDef& op, std::span<const Tensor> in, Attrs attrs) {
  new_.set_scope(like.scope);
  return new_.add(op, in, std::move(attrs), like.where);
}

void Rewriter::copy(const Node& node) {
  const std::vector<Tensor> out = add(node, *node.op, inputs_of(node), node.attrs);
  for (size_t i = 0; i < out.size(); ++i) map(node.out[i], out[i]);
}

Graph Rewriter::finish() {
  for (const GraphOutput& output : old_.outputs()) new_.output(output.name, (*this)[output.value]);
  for (const StateUpdate& update : old_.updates()) new_.update((*this)[update.state], (*this)[update.value]);
  // Tensors point at the graph they were made in; from here on only ids matter.
  return std::move(new_);
}

}  // namespace linnet

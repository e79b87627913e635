#include "engine/ir/op.h"

namespace linnet {

void expect_inputs(const InferArgs& args, size_t count) {
  if (args.in.size() != count)
    throw ShapeProblem("got " + std::to_string(args.in.size()) + " operands, expected " + std::to_string(count));
}

void expect(bool condition, const std::string& problem) {
  if (!condition) throw ShapeProblem(problem);
}

Algebra algebra_of(const Node& node) { return node.op->algebra ? node.op->algebra(node) : Algebra::kOther; }

StorageRule storage_of(const Node& node) { return node.op->storage ? node.op->storage(node) : StorageRule{}; }

std::string label_of(const Node& node) {
  if (node.op->label) return node.op->label(node);
  std::string text = node.op->name;
  for (const std::string& word : node.attrs.words()) text += "+" + word;
  return text;
}

double node_flops(const Graph& graph, const Node& node) {
  if (!node.op->flops) return 0;
  const NodeTypes types = types_of(graph, node);
  return node.op->flops({node, types.in, types.out});
}

double graph_flops(const Graph& graph) {
  double sum = 0;
  for (NodeId id = 0; id < graph.node_count(); ++id) sum += node_flops(graph, graph.node(id));
  return sum;
}

}  // namespace linnet

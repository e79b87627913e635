#include "ir/op.h"

namespace linnet {

void expect_inputs(const InferArgs& args, size_t count) {
  if (args.in.size() != count)
    throw ShapeProblem("got " + std::to_string(args.in.size()) + " operands, expected " + std::to_string(count));
}

void expect(bool condition, const std::string& problem) {
  if (!condition) throw ShapeProblem(problem);
}

double node_flops(const Graph& graph, const Node& node) {
  if (!node.op->flops) return 0;
  std::vector<TensorType> in, out;
  for (const ValueId id : node.in) in.push_back(graph.value(id).type);
  for (const ValueId id : node.out) out.push_back(graph.value(id).type);
  return node.op->flops({node, in, out});
}

double graph_flops(const Graph& graph) {
  double sum = 0;
  for (NodeId id = 0; id < graph.node_count(); ++id) sum += node_flops(graph, graph.node(id));
  return sum;
}

}  // namespace linnet

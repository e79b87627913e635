#include "engine/ir/op.h"
#include "base/error.h"

namespace linnet {
void expect_inputs(const InferArgs& args, size_t count) {
  if (args.in.size() != count)
    throw ShapeProblem("got " + std::to_string(args.in.size()) + " operands, expected " + std::to_string(count));
}

std::vector<TensorType> infer_same_float(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(is_float(args.in[0].dtype), "got ", args.in[0], ", expected floats");
  return {args.in[0]};
}

Shape leading_axes(const Shape& shape) { return Shape(shape.sizes().first(shape.rank() - 1)); }

Shape with_size(Shape shape, int axis, int64_t size) {
  shape.set(axis, size);
  return shape;
}

Shape with_axes(Shape shape, const Shape& last) {
  for (const int64_t size : last.sizes()) shape.push_back(size);
  return shape;
}

Graph* graph_of(const At& x) {
  if (!x.value.defined()) fail_shape(x, "an undefined tensor is used as an operand");
  if (x.value.stamp != 0 && !GraphStamp::is_alive(x.value.stamp))
    fail_shape(x, "an operand is a tensor whose recording has ended");
  return x.value.graph;
}

int from_start(const At& x, int axis) { return graph_of(x) && axis < 0 ? axis + x.value.shape().rank() : axis; }

std::vector<Tensor> op_results(const OpDef& op, const At& first, const std::vector<Tensor>& rest, Attrs attrs) {
  return graph_of(first)->add(op, with_more({first.value}, rest), std::move(attrs), first.where);
}

Tensor op_result(const OpDef& op, const At& first, const std::vector<Tensor>& rest, Attrs attrs) {
  return op_results(op, first, rest, std::move(attrs))[0];
}

std::vector<Tensor> with_more(std::vector<Tensor> operands, std::span<const Tensor> more) {
  operands.insert(operands.end(), more.begin(), more.end());
  return operands;
}

std::vector<Tensor> with_defined(std::vector<Tensor> operands, std::initializer_list<Tensor> optional) {
  for (const Tensor& operand : optional)
    if (operand.defined()) operands.push_back(operand);
  return operands;
}

std::vector<Tensor> GradientArgs::add(const OpDef& op, const std::vector<Tensor>& operands, Attrs attrs) const {
  return graph.add(op, operands, std::move(attrs), node.where);
}

std::vector<Tensor> GradientArgs::add(const OpDef& op, const std::vector<Tensor>& operands) const {
  return add(op, operands, node.attrs);
}

std::vector<Tensor> no_gradient(const GradientArgs& args) { return std::vector<Tensor>(args.in.size()); }

std::vector<Tensor> first_gradient(const GradientArgs& args) {
  std::vector<Tensor> gradients(args.in.size());
  gradients[0] = args.out_grad[0];
  return gradients;
}

Algebra algebra_of(const Node& node) { return node.op->algebra ? node.op->algebra(node) : Algebra::kOther; }

bool renames(const Node& node) { return algebra_of(node) == Algebra::kReshape || algebra_of(node) == Algebra::kSplit; }

StorageRule storage_of(const Node& node) { return node.op->storage ? node.op->storage(node) : StorageRule{}; }

void add_wants(const Node& node, const StorageRule& rule, std::vector<StorageWants>& wants) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Storage storage = rule.operand(i);
    StorageWants& in = wants[node.in[i]];
    in.reduced |= storage == Storage::kReduced, in.f32 |= storage == Storage::kF32;
    if (storage != Storage::kMoved) continue;
    for (const ValueId out : node.out) in.reduced |= wants[out].reduced, in.f32 |= wants[out].f32;
  }
}

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
  return sum_of<double>(graph.node_count(), [&](NodeId id) { return node_flops(graph, graph.node(id)); });
}
}  // namespace linnet

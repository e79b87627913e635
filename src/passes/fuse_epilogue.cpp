// A product whose only reader adds a row to it takes the row as its bias; when the only reader of that takes the
// positive part, the product does that too. relu's gradient reads its result, so nothing in between need be kept.
#include "ir/op.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

bool is_add(const Node& node) {
  if (node.op != &kPointwise || node.in.size() != 2) return false;
  const auto& code = node.attrs.as<PointwiseAttrs>().expression.code;
  return code.size() == 3 && code[2].function == Scalar::kAdd;
}

bool is_relu(const Node& node) {
  if (node.op != &kPointwise || node.in.size() != 1) return false;
  const auto& code = node.attrs.as<PointwiseAttrs>().expression.code;
  return code.size() == 2 && code[1].function == Scalar::kRelu;
}

class Epilogue {
 public:
  explicit Epilogue(const Graph& graph) : rewriter_(graph), uses_(count_uses(graph)) {}

  Graph run() {
    const Graph& graph = rewriter_.old();
    // The bias is added at the place of the addition: by then the row has been computed.
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      if (is_add(node) && (take_bias(node, 0) || take_bias(node, 1))) continue;
      if (is_relu(node) && take_relu(node)) continue;
      rewriter_.copy(node);
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  // The node of the new graph that computes the new value of `old`, if it is a matmul only this reader reads.
  const Node* lone_matmul(ValueId old) {
    if (uses_[static_cast<size_t>(old)] != 1) return nullptr;
    const NodeId producer = rewriter_.graph().value(rewriter_[old].id).producer;
    if (producer == kNone) return nullptr;
    const Node& node = rewriter_.graph().node(producer);
    return node.op == &kMatmul ? &node : nullptr;
  }

  void replace(const Node& node, Node product, const MatmulAttrs& attrs, std::vector<Tensor> in) {
    rewriter_.map(node.out[0], rewriter_.add(product, kMatmul, in, attrs)[0]);
  }

  std::vector<Tensor> operands(const Node& product) {
    std::vector<Tensor> in;
    for (ValueId id : product.in) in.push_back({&rewriter_.graph(), id});
    return in;
  }

  bool take_bias(const Node& node, size_t which) {
    const Node* product = lone_matmul(node.in[which]);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    const Tensor row = rewriter_[node.in[1 - which]];
    const Shape& shape = rewriter_.old().value(node.in[which]).type.shape;
    if (attrs.bias || attrs.relu || attrs.accumulate || row.shape() != Shape{shape[-1]} || shape.rank() < 2)
      return false;
    attrs.bias = true;
    std::vector<Tensor> in = operands(*product);
    in.push_back(row);
    replace(node, *product, attrs, in);
    return true;
  }

  bool take_relu(const Node& node) {
    const Node* product = lone_matmul(node.in[0]);
    if (!product) return false;
    MatmulAttrs attrs = product->attrs.as<MatmulAttrs>();
    if (attrs.relu || attrs.accumulate) return false;
    attrs.relu = true;
    replace(node, *product, attrs, operands(*product));
    return true;
  }

  Rewriter rewriter_;
  std::vector<int> uses_;
};

}  // namespace

Graph fuse_epilogue(const Graph& graph) { return Epilogue(graph).run(); }

}  // namespace linnet

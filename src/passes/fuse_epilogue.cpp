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
  explicit Epilogue(const Graph& graph) : rewriter_(graph) {}

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
  const Node* lone_matmul(ValueId old) const {
    const Node* producer = rewriter_.lone_producer(old);
    return producer && producer->op == &kMatmul ? producer : nullptr;
  }

  void replace(const Node& node, const Node& product, const MatmulAttrs& attrs, std::vector<Tensor> in) {
    const Node place = product;  // adding a node moves the others
    rewriter_.map(node.out[0], rewriter_.add(place, kMatmul, in, attrs)[0]);
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
    std::vector<Tensor> in = rewriter_.operands(*product);
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
    replace(node, *product, attrs, rewriter_.operands(*product));
    return true;
  }

  Rewriter rewriter_;
};

}  // namespace

Graph fuse_epilogue(const Graph& graph) { return Epilogue(graph).run(); }

}  // namespace linnet

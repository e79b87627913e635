// Where a linear layer follows a pooled convolution, its input's gradient is as large as all pooled images and read
// once, by the gradient of the convolution's weight: that computes it for a few images at a time instead, in cache.
#include <array>

#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class PoolGradient {
 public:
  PoolGradient(const Graph& graph, const Backend& backend) : rewriter_(graph), backend_(backend) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!fuse(node)) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  bool fuse(const Node& node) {
    if (!is(node, kConvReluPoolWeightGrad) || node.in.size() != 3 || !rewriter_.lone_producer(node.in[2])) return false;
    const Node& flat = rewriter_.old().node(rewriter_.old().value(node.in[2]).producer);
    if (algebra_of(flat) != Algebra::kReshape) return false;
    const Node* product = rewriter_.lone_producer(flat.in[0]);
    if (!is(product, kMatmul) || !computes(product->attrs.as<MatmulAttrs>())) return false;
    const std::vector<Tensor> factors = rewriter_.operands(*product);
    // One row for each image.
    if (factors[0].shape().rank() != 2 || factors[1].shape().rank() != 2 ||
        factors[0].dim(0) != rewriter_.old().value(node.in[2]).type.shape[0] || !has_kernel(node, factors))
      return false;
    const std::vector<Tensor> out = rewriter_.add(
        node, *node.op, std::array{rewriter_[node.in[0]], rewriter_[node.in[1]], factors[0], factors[1]}, node.attrs);
    for (size_t i = 0; i < out.size(); ++i) rewriter_.map(node.out[i], out[i]);
    return true;
  }

  static bool computes(const MatmulAttrs& attrs) {
    return !attrs.trans_a && !attrs.trans_b && !attrs.bias && !attrs.accumulate && !attrs.pre_activation &&
           attrs.is_sum() && attrs.precision == Precision::kF32;
  }

  // A kernel that takes the factors instead of their product.
  bool has_kernel(const Node& node, const std::vector<Tensor>& factors) const {
    const Graph& graph = rewriter_.old();
    const std::vector<TensorType> in{graph.value(node.in[0]).type, graph.value(node.in[1]).type, factors[0].type(),
                                     factors[1].type()};
    std::vector<TensorType> out;
    for (const ValueId id : node.out) out.push_back(graph.value(id).type);
    return has_fast_kernel(node, in, out, backend_);
  }

  Rewriter rewriter_;
  const Backend& backend_;
};

}  // namespace

Graph fuse_pool_gradient(const Graph& graph, const Backend& backend) { return PoolGradient(graph, backend).run(); }

}  // namespace linnet

// Where a linear layer follows a pooled convolution, its input's gradient is as large as all pooled images and read
// once, by the gradient of the convolution's weight: that computes it for a few images at a time instead, in cache.
#include <array>

#include "ir/op.h"
#include "kernels/dense_head.h"
#include "ops/conv_pool/conv_pool.h"
#include "ops/matmul/matmul.h"
#include "ops/movement/movement.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

class PoolGradient {
 public:
  explicit PoolGradient(const Graph& graph) : rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!fuse(node)) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  bool fuse(const Node& node) {
    if (node.op != &kConvReluPoolWeightGrad || node.in.size() != 3 || !rewriter_.lone_producer(node.in[2]))
      return false;
    const Node& flat = rewriter_.old().node(rewriter_.old().value(node.in[2]).producer);
    if (flat.op != &kReshape) return false;
    const Node* product = rewriter_.lone_producer(flat.in[0]);
    if (!product || product->op != &kMatmul || !computes(product->attrs.as<MatmulAttrs>())) return false;
    const std::vector<Tensor> factors = rewriter_.operands(*product);
    // Of each image one row, so few outputs that a row's cost is small.
    if (factors[0].shape().rank() != 2 || factors[1].shape().rank() != 2 ||
        factors[0].dim(0) != rewriter_.old().value(node.in[2]).type.shape[0] ||
        factors[0].dim(1) > DenseHeadShape::kMaxOutputs)
      return false;
    const std::vector<Tensor> out = rewriter_.add(
        node, *node.op, std::array{rewriter_[node.in[0]], rewriter_[node.in[1]], factors[0], factors[1]}, node.attrs);
    for (size_t i = 0; i < out.size(); ++i) rewriter_.map(node.out[i], out[i]);
    return true;
  }

  static bool computes(const MatmulAttrs& attrs) {
    return !attrs.trans_a && !attrs.trans_b && !attrs.bias && !attrs.accumulate && !attrs.before && attrs.is_sum() &&
           attrs.precision == Precision::kF32;
  }

  Rewriter rewriter_;
};

}  // namespace

Graph fuse_pool_gradient(const Graph& graph) { return PoolGradient(graph).run(); }

}  // namespace linnet

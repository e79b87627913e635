// Matrix products in bf16 or TF32: operands are rounded on their way in, sums and everything else stay fp32.
// Parameters, gradients and the optimizer's states are never stored in less than fp32.
#include "ir/op.h"
#include "ops/attention/attention.h"
#include "ops/conv2d/conv2d.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {

namespace {

template <class T>
Attrs lowered(const Attrs& old, Precision precision) {
  T attrs = old.as<T>();
  attrs.precision = precision;
  return attrs;
}

Attrs lower(const Node& node, Precision precision, Precision attention) {
  if (node.op == &kAttention || node.op == &kAttentionGrad) return lowered<AttentionAttrs>(node.attrs, attention);
  if (node.op == &kConv2d || node.op == &kConv2dInputGrad || node.op == &kConv2dWeightGrad)
    return lowered<Conv2dAttrs>(node.attrs, precision);
  if (node.op == &kMatmul) return lowered<MatmulAttrs>(node.attrs, precision);
  if (node.op == &kLinearCrossEntropy || node.op == &kLinearCrossEntropyGrad)
    return lowered<LinearCrossEntropyAttrs>(node.attrs, precision);
  return node.attrs;
}

}  // namespace

Graph lower_precision(const Graph& graph, Precision precision, Precision attention) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const std::vector<Tensor> out =
        rewriter.add(node, *node.op, rewriter.inputs_of(node), lower(node, precision, attention));
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

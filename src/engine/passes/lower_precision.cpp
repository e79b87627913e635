// Matrix products in bf16 or TF32: operands are rounded on their way in, sums and everything else stay fp32.
// Parameters, gradients and the optimizer's states are never stored in less than fp32. For fp16 the rounding is nodes
// of its own, and the products themselves stay fp32.
#include <array>
#include <map>

#include "engine/ir/op.h"
#include "engine/ops/round_half/round_half.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {

namespace {

Precision precision_of(const Node& node, Precision precision, Precision attention) {
  return node.op->product == ProductKind::kNone        ? Precision::kF32
         : node.op->product == ProductKind::kAttention ? attention
                                                       : precision;
}

// Rounds the operands of products to fp16, each value once: those that may be stored in less than fp32.
class HalfOperands {
 public:
  explicit HalfOperands(Rewriter& rewriter) : rewriter_(rewriter) {}

  std::vector<Tensor> of(const Node& node) {
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    const StorageRule rule = node.op->storage ? storage_of(node) : StorageRule{.rest = Storage::kReduced};
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i].type().dtype == DType::kF32 && rule.operand(i) != Storage::kF32) in[i] = rounded(node, in[i]);
    return in;
  }

 private:
  Tensor rounded(const Node& reader, const Tensor& value) {
    Tensor& half = halves_[value.id];
    if (!half.defined()) half = rewriter_.add(reader, kRoundHalf, std::array{value}, {})[0];
    return half;
  }

  Rewriter& rewriter_;
  std::map<ValueId, Tensor> halves_;
};

Attrs lower(const Node& node, Precision precision, Precision attention) {
  switch (node.op->product) {
    case ProductKind::kNone:
      break;
    case ProductKind::kMatrix:
      return node.op->with_precision(node.attrs, precision);
    case ProductKind::kAttention:
      return node.op->with_precision(node.attrs, attention);
  }
  return node.attrs;
}

}  // namespace

Graph lower_precision(const Graph& graph, Precision precision, Precision attention) {
  Rewriter rewriter(graph);
  HalfOperands halves(rewriter);
  for (const Node& node : graph.nodes()) {
    const bool half = precision_of(node, precision, attention) == Precision::kF16;
    const std::vector<Tensor> out = rewriter.add(node, *node.op, half ? halves.of(node) : rewriter.inputs_of(node),
                                                 half ? node.attrs : lower(node, precision, attention));
    for (size_t i = 0; i < out.size(); ++i) rewriter.map(node.out[i], out[i]);
  }
  return rewriter.finish();
}

}  // namespace linnet

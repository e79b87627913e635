// Matrix products in bf16 or TF32: operands are rounded when read; all else, sums included, stays fp32. Parameters,
// gradients and optimizer states are never stored below fp32. For fp16, rounding is a node and products stay fp32.
#include <algorithm>
#include <array>
#include <map>
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
bool has_bf16_weight(const Graph& graph, const Node& node) {
  return std::ranges::any_of(node.in, [&](ValueId in) {
    const Node* weight = producer_of(graph, before_reshapes(graph, in));
    return weight && is(*weight, kDequantize) && weight->attrs.as<QuantizedAttrs>().format == WeightFormat::kBf16;
  });
}

Precision precision_of(const Node& node, Precision precision, Precision attention) {
  return node.op->product == ProductKind::kNone        ? Precision::kF32
         : node.op->product == ProductKind::kAttention ? attention
                                                       : precision;
}

// Keeps recomputation from changing which results are rounded to the storage type. With bf16 activations, a value is
// rounded when it is written to memory, and an elementwise result with one elementwise reader is never written, as
// fuse_pointwise joins the two. A result with several readers, such as silu(gate) of a gated feed-forward layer, is
// written once; recomputed, it becomes two results with one reader each, which both join their readers.
//
// So this makes rounding a part of such a result's computation while the graph is as traced. If the result is stored in
// bf16 after all, cast_to_storage_type removes the rounding.

class RoundShared final : public Fusion {
 public:
  explicit RoundShared(const Graph& graph) : Fusion(graph), wants_(graph.value_count()) {
    for (const ValueId result : results_of(graph)) wants_[result].f32 = true;
    for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
      const Node& node = graph.node(id);
      add_wants(node, storage_of(node), wants_);
    }
  }

 private:
  bool take(const Node& node) override {
    if (id_of(node) >= loss_ || !is_rounded(node)) return false;
    Node rounded = node;
    rounded.attrs = PointwiseAttrs{rounded_to_bf16(node.attrs.as<PointwiseAttrs>().expression)};
    rewriter_.copy(rounded);
    return true;
  }

  bool is_rounded(const Node& node) {
    if (!is(node, kPointwise) || is_rounded_to_bf16(node.attrs.as<PointwiseAttrs>().expression)) return false;
    const ValueId out = node.out[0];
    const TensorType& type = graph_.value(out).type;
    const auto readers = matcher_.readers(out);
    if (type.dtype != DType::kF32 || type.shape.elements() == 1 || readers.size() < 2) return false;
    if (wants_[out].f32 && !wants_[out].reduced) return false;
    return std::ranges::any_of(readers, [&](NodeId reader) {
      return reader < graph_.node_count() && is(graph_.node(reader), kPointwise) &&
             graph_.value(graph_.node(reader).out[0]).type.shape == type.shape;
    });
  }

  const NodeId loss_ = find_loss(graph_);
  std::vector<StorageWants> wants_;  // by value; where all readers want fp32, it stays fp32
};
}  // namespace

Graph lower_precision(const Graph& graph, Precision precision, Precision attention, bool as_stored) {
  Rewriter rewriter(graph);
  std::map<ValueId, Tensor> halves;
  // Rounds each operand of a product that may be stored below fp32 to fp16, once.
  const auto round_operands = [&](const Node& node, std::vector<Tensor>& in) {
    const StorageRule rule = node.op->storage ? storage_of(node) : StorageRule{.rest = Storage::kReduced};
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].type().dtype != DType::kF32 || rule.operand(i) == Storage::kF32) continue;
      Tensor& half = halves[in[i].id];
      if (!half.defined()) half = rewriter.add(node, kRoundHalf, std::array{in[i]}, {})[0];
      in[i] = half;
    }
  };
  for (const Node& node : graph.nodes()) {
    const Precision own =
        as_stored && has_bf16_weight(graph, node) ? Precision::kBf16 : precision_of(node, precision, attention);
    const bool half = own == Precision::kF16, lowered = !half && node.op->product != ProductKind::kNone;
    std::vector<Tensor> in = rewriter.inputs_of(node);
    if (half) round_operands(node, in);
    rewriter.replace(node, *node.op, in, lowered ? node.op->with_precision(node.attrs, own) : node.attrs);
  }
  return rewriter.finish();
}

Graph round_shared(const Graph& graph) { return RoundShared(graph).run(); }
}  // namespace linnet

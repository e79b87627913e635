// Joins an elementwise op with its only reader, if that is elementwise with the same shape. Nothing is computed twice,
// and nothing fuses across a reduction.
//
// Results that are rounded to bf16 (lower_precision.cpp) join last, as they have a single reader only if blocks or
// nodes are recomputed. A node that becomes too long then leaves out only these, so it is the same with and without
// recomputation.
//
// On the CPU the op itself repeats an operand [B, 1, D] that broadcast_to() has repeated to [B, T, D].
#include <algorithm>
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
constexpr size_t kMostOperands = 8, kMostInstructions = 32;  // longer ones save little memory traffic

class Pointwise final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kPointwise)) return false;
    Expression expression = node.attrs.as<PointwiseAttrs>().expression;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    std::vector<ValueId> old = node.in;  // the old value behind each operand; kNone once joined
    const Shape& shape = graph_.value(node.out[0]).type.shape;
    for (const bool rounded : {false, true}) join_producers(rounded, shape, expression, in, old);
    merge_equal_operands(expression, in);
    repeat_middles(node, expression, in);
    rewriter_.replace(node, kPointwise, in, PointwiseAttrs{expression});
    return true;
  }

  // Joins the producers of operands with rounded results, or the others.
  void join_producers(
      bool rounded, const Shape& shape, Expression& expression, std::vector<Tensor>& in, std::vector<ValueId>& old) {
    for (size_t k = 0; k < in.size();) {
      const Node* producer = joinable(old[k], in[k], shape);
      const Expression* first = producer ? &producer->attrs.as<PointwiseAttrs>().expression : nullptr;
      if (!first || is_rounded_to_bf16(*first) != rounded || in.size() + producer->in.size() - 1 > kMostOperands ||
          expression.code.size() + first->code.size() > kMostInstructions) {
        ++k;
        continue;
      }
      expression = join(*first, static_cast<int>(producer->in.size()), expression, static_cast<int>(k));
      std::vector<Tensor> joined = rewriter_.operands(*producer);
      std::vector<ValueId> joined_old(joined.size(), kNone);
      for (size_t j = 0; j < in.size(); ++j)
        if (j != k) joined.push_back(in[j]), joined_old.push_back(old[j]);
      in = std::move(joined), old = std::move(joined_old);
      k = 0;
    }
  }

  void repeat_middles(const Node& node, const Expression& expression, std::vector<Tensor>& in) {
    const auto is_full = [&](Tensor x) { return x.shape() == graph_.value(node.out[0]).type.shape; };
    for (Tensor& operand : in) {
      if (!is_full(operand)) continue;
      const Tensor repeated = std::exchange(operand, before_repetition(operand));
      // Another operand must give the shape.
      if (std::ranges::none_of(in, is_full) || !has_kernel(node, kPointwise, PointwiseAttrs{expression}, in))
        operand = repeated;
    }
  }

  // The operand [B, 1, D] of a repetition along the middle axis; other operands as they are.
  static Tensor before_repetition(Tensor operand) {
    const Node* broadcast = node_if(producer_of(operand), kBroadcast);
    const Tensor small = broadcast ? Tensor{operand.graph, broadcast->in[0]} : operand;
    return find_broadcast(small.shape(), operand.shape()) == Broadcast::kMiddle ? small : operand;
  }

  const Node* joinable(ValueId old, Tensor now, const Shape& shape) const {
    return old == kNone || now.shape() != shape ? nullptr : rewriter_.lone_producer(old, kPointwise);
  }

  static void merge_equal_operands(Expression& expression, std::vector<Tensor>& in) {
    std::vector<Tensor> unique;
    std::vector<int16_t> location;
    for (const Tensor& tensor : in) {
      const auto found = std::find_if(unique.begin(), unique.end(), [&](const Tensor& t) { return t.id == tensor.id; });
      location.push_back(static_cast<int16_t>(found - unique.begin()));
      if (found == unique.end()) unique.push_back(tensor);
    }
    for (Instruction& instruction : expression.code)
      if (instruction.function == Scalar::kInput) instruction.a = location[instruction.a];
    in = std::move(unique);
  }
};
}  // namespace

Graph fuse_pointwise(const Graph& graph, const Backend& backend) { return Pointwise(graph, backend).run(); }
}  // namespace linnet

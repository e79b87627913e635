// Joins an elementwise op with its only reader, if that is elementwise with the same shape. Nothing is computed twice,
// and nothing fuses across a reduction.
//
// Results that are rounded to bf16 (lower_precision.cpp) join last, as they have a single reader only if blocks or
// nodes are recomputed. A node that becomes too long then leaves out only these, so it is the same with and without
// recomputation.
//
// An operand of broadcast_to() is read before its repetition ([B, 1, D] to [B, T, D]: on the CPU alone).
//
// A sum computes the values that only it reads (kPointwiseSum), to the same bits. A short expression of repeated
// operands reads little, so each sum computes it again instead of reading it.
#include <algorithm>
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
constexpr size_t kMostOperands = 8, kMostInstructions = 32;  // longer ones save little memory traffic
constexpr int64_t kFewColumns = 8;                           // sums of fewer take longer together with their values
// A sum computes an operand again if its expression has at most kShort instructions and reads at most 1 / kRepeated of
// the operand's elements.
constexpr int64_t kRepeated = 4;
constexpr size_t kShort = 6;

// The operand of a repetition, if it can be repeated to `full` by an op that reads it; else x.
Tensor before_repetition(Tensor x, const Shape& full) {
  const Node* broadcast = node_if(producer_of(x), kBroadcast);
  const Tensor small = broadcast ? Tensor{x.graph, broadcast->in[0]} : x;
  return find_broadcast(small.shape(), full) ? small : x;
}

void merge_equal_operands(Expression& expression, std::vector<Tensor>& in) {
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
    repeat_operands(node, expression, in);
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

  void repeat_operands(const Node& node, const Expression& expression, std::vector<Tensor>& in) {
    const auto is_full = [&](Tensor x) { return x.shape() == graph_.value(node.out[0]).type.shape; };
    for (Tensor& operand : in) {
      if (!is_full(operand)) continue;
      const Tensor repeated = std::exchange(operand, before_repetition(operand, operand.shape()));
      // Another operand must give the shape.
      if (std::ranges::none_of(in, is_full) || !has_kernel(node, kPointwise, PointwiseAttrs{expression}, in))
        operand = repeated;
    }
  }

  const Node* joinable(ValueId old, Tensor now, const Shape& shape) const {
    return old == kNone || now.shape() != shape ? nullptr : rewriter_.lone_producer(old, kPointwise);
  }
};

class Sums final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kReduce) || node.attrs.as<ReduceAttrs>().kind != Reduction::kSum) return false;
    const TensorType &full = graph_.value(node.in[0]).type, &sums = graph_.value(node.out[0]).type;
    if (sums_leading_axes(sums.shape, full.shape)) return false;
    const Node* lone = rewriter_.lone_producer(node.in[0], kPointwise);
    bool is_joined = false;
    Expression expression{{{.function = Scalar::kInput, .a = 0}}};
    std::vector<Tensor> in{rewriter_[node.in[0]]};
    for (size_t k = 0; k < in.size();) {
      in[k] = before_repetition(in[k], full.shape);
      const Node* producer = node_if(producer_of(in[k]), kPointwise);
      if (!producer || in[k].shape() != full.shape || in.size() + producer->in.size() > kMostOperands + 1 ||
          (producer != lone && reads(in[k]) > full.shape.elements() / kRepeated)) {
        ++k;
        continue;
      }
      const Expression& first = producer->attrs.as<PointwiseAttrs>().expression;
      std::vector<Tensor> joined = rewriter_.operands(*producer);
      expression = join(first, static_cast<int>(joined.size()), expression, static_cast<int>(k));
      for (size_t j = 0; j < in.size(); ++j)
        if (j != k) joined.push_back(in[j]);
      in = std::move(joined), k = 0, is_joined = true;
    }
    merge_equal_operands(expression, in);
    const PointwiseSumAttrs attrs{expression, full.shape, sums.shape};
    if (!is_joined || expression.code.size() > kMostInstructions || !has_kernel(node, kPointwiseSum, attrs, in))
      return false;
    rewriter_.replace(node, kPointwiseSum, in, attrs);
    return true;
  }

  // Elements to read in order to compute x again, at most its own.
  static int64_t reads(Tensor x, int depth = 2) {
    x = before_repetition(x, x.shape());
    const Node* node = node_if(producer_of(x), kPointwise);
    if (!node || depth == 0 || node->attrs.as<PointwiseAttrs>().expression.code.size() > kShort)
      return x.shape().elements();
    return sum_of<int64_t>(node->in, [&](ValueId in) { return reads(Tensor{x.graph, in}, depth - 1); });
  }
};
}  // namespace

Graph fuse_sums(const Graph& graph, const Backend& backend) { return Sums(graph, backend).run(); }

Graph fuse_pointwise(const Graph& graph, const Backend& backend) { return Pointwise(graph, backend).run(); }
}  // namespace linnet

// An elementwise op whose result has one reader, elementwise too and of the same shape, joins it. Nothing is computed
// twice and nothing fuses across a reduction.
//
// Results that are rounded to bf16 (lower_precision.cpp) join last. They have a single reader only where blocks or
// single nodes are computed again; where they have several they do not join at all. So a node that grows too long
// leaves out these, and joins the same others either way.
#include <algorithm>

#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

constexpr size_t kMostOperands = 8, kMostInstructions = 32;  // longer ones save little memory traffic

class Pointwise : Fusion {
 public:
  using Fusion::Fusion;
  Graph run() {
    return replace_nodes([this](const Node& node) { return fuse(node); });
  }

 private:
  bool fuse(const Node& node) {
    if (!is(node, kPointwise)) return false;
    Expression expression = node.attrs.as<PointwiseAttrs>().expression;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    std::vector<ValueId> old = node.in;  // the old value behind each operand; kNone once joined
    const Shape& shape = graph_.value(node.out[0]).type.shape;
    for (const bool rounded : {false, true}) join_producers(rounded, shape, expression, in, old);
    merge_equal_operands(expression, in);
    rewriter_.replace(node, kPointwise, in, PointwiseAttrs{expression});
    return true;
  }

  // Joins the producers of operands whose results are rounded, or those whose results are not.
  void join_producers(bool rounded, const Shape& shape, Expression& expression, std::vector<Tensor>& in,
                      std::vector<ValueId>& old) {
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

  const Node* joinable(ValueId old, Tensor now, const Shape& shape) const {
    if (old == kNone || now.shape() != shape) return nullptr;
    const Node* producer = rewriter_.lone_producer(old);
    return is(producer, kPointwise) ? producer : nullptr;
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
      if (instruction.function == Scalar::kInput) instruction.a = location[static_cast<size_t>(instruction.a)];
    in = std::move(unique);
  }
};

}  // namespace

Graph fuse_pointwise(const Graph& graph) { return Pointwise(graph).run(); }

}  // namespace linnet

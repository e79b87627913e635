// An elementwise op whose result has one reader, elementwise too and of the same shape, joins it. Nothing is computed
// twice and nothing fuses across a reduction.
#include <algorithm>

#include "ops/pointwise/pointwise.h"
#include "passes/matcher.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

constexpr size_t kMostOperands = 8, kMostInstructions = 32;  // longer ones save little memory traffic

class Pointwise {
 public:
  explicit Pointwise(const Graph& graph) : rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes()) {
      if (is(node, kPointwise))
        fuse(node);
      else
        rewriter_.copy(node);
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  void fuse(const Node& node) {
    Expression expression = node.attrs.as<PointwiseAttrs>().expression;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    std::vector<ValueId> old = node.in;  // the old value behind each operand; kNone once joined
    const Shape& shape = rewriter_.old().value(node.out[0]).type.shape;
    for (size_t k = 0; k < in.size();) {
      const Node* producer = joinable(old[k], in[k], shape);
      if (!producer || in.size() + producer->in.size() - 1 > kMostOperands ||
          expression.code.size() + producer->attrs.as<PointwiseAttrs>().expression.code.size() > kMostInstructions) {
        ++k;
        continue;
      }
      expression = join(producer->attrs.as<PointwiseAttrs>().expression, static_cast<int>(producer->in.size()),
                        expression, static_cast<int>(k));
      std::vector<Tensor> joined = rewriter_.operands(*producer);
      std::vector<ValueId> joined_old(joined.size(), kNone);
      for (size_t j = 0; j < in.size(); ++j)
        if (j != k) joined.push_back(in[j]), joined_old.push_back(old[j]);
      in = std::move(joined), old = std::move(joined_old);
      k = 0;
    }
    merge_equal_operands(expression, in);
    rewriter_.map(node.out[0], rewriter_.add(node, kPointwise, in, PointwiseAttrs{expression})[0]);
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

  Rewriter rewriter_;
};

}  // namespace

Graph fuse_pointwise(const Graph& graph) { return Pointwise(graph).run(); }

}  // namespace linnet

// Training in int8 (Wortsman et al. 2023, "SwitchBack"): a linear layer's product a W^T, and that of its input's
// gradient dy W, multiply 8-bit numbers. Rows of a and dy are rounded when they are multiplied, each by a scale of its
// own, and a row with outliers with its remainder (StaticRounding::largest_error); the weight is rounded and packed
// once for each of the two products, each row of W or W^T by a scale of its own. The weight's gradient dy^T a, of which
// both operands are new in each step and whose errors would add up in the weight, keeps the precision that all else
// has.
//
// Lookups in a table, a classifier with its loss (linear_cross_entropy) and convolutions are other ops: the first and
// the last layer of a language model are not rounded.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include "engine/ops/movement/movement.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

// A smaller product takes less time than the rounding of its operands.
constexpr int64_t kLeastSize = 32;
constexpr float kLargestError = 0.04F;

class QuantizeProducts : Fusion {
 public:
  explicit QuantizeProducts(const Graph& graph) : Fusion(graph), loss_(find_loss(graph)) {}
  Graph run() {
    return replace_nodes([this](const Node& node) { return take(node); });
  }

 private:
  // Whether the value is an input of the graph, or what an input stands for: a weight, as it does not change in a run.
  bool is_weight(ValueId value) const {
    const Node* producer = matcher_.producer(value);
    return !producer || ((is(producer, kReshape) || is(producer, kSplit) || is(producer, kDequantize)) &&
                         is_weight(producer->in[0]));
  }

  bool take(const Node& node) {
    if (!is(node, kMatmul)) return false;
    MatmulAttrs product = node.attrs.as<MatmulAttrs>();
    const Shape &a = graph_.value(node.in[0]).type.shape, &w = graph_.value(node.in[1]).type.shape;
    if (product.trans_a || product.row_sums || w.rank() != 2 || !is_weight(node.in[1])) return false;
    if (std::min({a.elements() / a[-1], w[0], w[1]}) < kLeastSize || a[-1] > PackedShape::kMostColumns) return false;
    const bool transposed = !product.trans_b;
    product.trans_b = true;
    const QuantizedAttrs weight{.weight = {DType::kF32, transposed ? Shape{w[1], w[0]} : w}};
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    // What is computed again in the backward pass packs again, so that no weight waits in memory.
    const bool is_backward = &node - graph_.nodes().data() > loss_;
    Tensor& packed = packed_[{node.in[1], transposed, is_backward}];
    if (!packed.defined())
      packed = rewriter_.add(node, kQuantizeWeight, std::array{in[1]}, QuantizeWeightAttrs{weight, transposed})[0];
    in[1] = packed;
    rewriter_.replace(node, kQuantizedMatmul, in,
                      QuantizedMatmulAttrs{weight, product, {.largest_error = kLargestError}});
    return true;
  }

  const NodeId loss_;
  std::map<std::tuple<ValueId, bool, bool>, Tensor> packed_;  // by weight, transposed, in the backward pass
};

}  // namespace

Graph quantize_products(const Graph& graph) { return QuantizeProducts(graph).run(); }

}  // namespace linnet

// A linear cross-entropy and its gradient compute the same logits, so the gradient node computes the loss as well, at
// the forward node's position. What else it needs moves before it: the loss's gradient, a scalar that does not depend
// on the loss, and the weight's gradient of earlier micro-steps, to which it adds its own. (A tied weight's gradient
// gets further parts later, so its sum does not start with it.)
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
class FuseLoss final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override { return rename(node) || (is(node, kLinearCrossEntropy) && fuse(id_of(node))); }

  bool rename(const Node& node) {
    const ValueId* same = find_value(renamed_, node.out[0]);
    if (same) rewriter_.map(node.out[0], rewriter_[*same]);
    return same != nullptr;
  }

  bool fuse(NodeId forward) {
    const Node& node = graph_.node(forward);
    const NodeId gradient = gradient_of(forward);
    if (gradient == kNone) return false;
    const Node& grad = graph_.node(gradient);
    move_before(grad.in.back());
    LinearCrossEntropyAttrs attrs = grad.attrs.as<LinearCrossEntropyAttrs>();
    attrs.loss = true;
    std::vector<Tensor> in = rewriter_.inputs_of(grad);
    if (const ValueId start = attrs.weight_gradient ? take_start(grad.out[1], forward) : kNone; start != kNone) {
      attrs.accumulate = true;
      move_before(start);
      in.push_back(rewriter_[start]);
    }
    const std::vector<Tensor> out = rewriter_.add(node, kLinearCrossEntropyGrad, in, attrs);
    rewriter_.map_results(grad, out);
    rewriter_.map(node.out[0], out.back());
    return true;
  }

  // The gradient node of the same loss, if its operands can be known before the loss.
  NodeId gradient_of(NodeId forward) const {
    const Node& node = graph_.node(forward);
    for (NodeId id = forward + 1; id < graph_.node_count(); ++id) {
      const Node& grad = graph_.node(id);
      if (is(grad, kLinearCrossEntropyGrad) && grad.in.size() == node.in.size() + 1 &&
          std::equal(node.in.begin(), node.in.end(), grad.in.begin()) &&
          set_member<&LinearCrossEntropyAttrs::weight_gradient>(grad.attrs) == node.attrs &&
          can_move_before(grad.in.back(), forward))
        return id;
    }
    return kNone;
  }

  // Scalars and reshapes or parts of a tensor cost nothing to have early.
  bool can_move_before(ValueId value, NodeId location) const {
    const NodeId producer = graph_.value(value).producer;
    if (producer < location) return true;  // an input, or there already
    const Node& node = graph_.node(producer);
    if (producer == location || !(renames(node) || graph_.value(value).type.shape.elements() == 1)) return false;
    return std::all_of(node.in.begin(), node.in.end(), [&](ValueId in) { return can_move_before(in, location); });
  }

  void move_before(ValueId value) {
    if (rewriter_[value].defined()) return;
    const Node& producer = *matcher_.producer(value);
    for (ValueId in : producer.in) move_before(in);
    rewriter_.copy(producer);
  }

  // For start + (part + later parts), where nothing else reads the sums: returns `start`, to which the part is added.
  // The outer sum becomes an alias of the inner one. kNone: no start.
  ValueId take_start(ValueId part, NodeId location) {
    for (const Node* sum = matcher_.one_reader(part); sum && matcher_.is_sum(*sum); sum = matcher_.one_reader(part)) {
      const ValueId other = other_operand(*sum, part);
      if (can_move_before(other, location)) {
        renamed_[sum->out[0]] = part;
        return other;
      }
      part = sum->out[0];
    }
    return kNone;
  }

  std::map<ValueId, ValueId> renamed_;
};

// The gradient of a linear layer's bias sums the same rows that its weight's gradient product reads. A GPU's library
// adds them on the way, which saves the launches of a separate sum.

class BiasGradient final : public Fusion {
 public:
  BiasGradient(const Graph& graph, const Backend& backend) : Fusion(graph, backend) {
    for (const Node& node : graph_.nodes()) pair(node);
  }

 private:
  struct Pair {
    NodeId product, sum;
  };

  bool take(const Node& node) override {
    const Pair* pair = find_value(pairs_, id_of(node));
    if (pair) fuse(graph_.node(pair->product), graph_.node(pair->sum));
    return pair || moved_.contains(id_of(node));
  }

  void pair(const Node& sum) {
    if (!sums_rows(sum)) return;
    if (pair_with_reader_of(sum.in[0], sum)) return;
    for (const NodeId reader : matcher_.readers(sum.in[0]))
      if (reader < graph_.node_count() && algebra_of(graph_.node(reader)) == Algebra::kReshape &&
          pair_with_reader_of(graph_.node(reader).out[0], sum))
        return;
  }

  bool sums_rows(const Node& node) const {
    if (!is(node, kReduce) || node.attrs.as<ReduceAttrs>().kind != Reduction::kSum) return false;
    const Shape& from = graph_.value(node.in[0]).type.shape;
    return from.rank() > 1 && graph_.value(node.out[0]).type.shape == Shape{from[-1]};
  }

  // Finds a product whose first operand is `rows`, transposed.
  bool pair_with_reader_of(ValueId rows, const Node& sum) {
    const Shape &shape = graph_.value(rows).type.shape, &sums = graph_.value(sum.out[0]).type.shape;
    if (shape.rank() != 2 || shape[-1] != sums[0]) return false;
    return std::ranges::any_of(matcher_.readers(rows), [&](NodeId reader) {
      return reader < graph_.node_count() && graph_.node(reader).in[0] == rows && pair(graph_.node(reader), sum);
    });
  }

  // The new node stands at the later position, where all operands exist.
  bool pair(const Node& product, const Node& sum) {
    if (!is(product, kMatmul) || !is_plain(product) || !has_kernel(product, sum)) return false;
    const NodeId first = std::min(id_of(product), id_of(sum)), last = std::max(id_of(product), id_of(sum));
    if (moved_.contains(first) || pairs_.contains(first) || pairs_.contains(last)) return false;
    for (const NodeId reader : matcher_.readers(graph_.node(first).out[0]))
      if (reader < last) return false;
    moved_.insert(first);
    pairs_[last] = {id_of(product), id_of(sum)};
    return true;
  }

  bool is_plain(const Node& product) const {
    const auto& attrs = product.attrs.as<MatmulAttrs>();
    return attrs.trans_a && !attrs.bias && !attrs.pre_activation && !attrs.row_sums && attrs.is_sum() &&
           graph_.value(product.in[1]).type.shape.rank() == 2;
  }

  static constexpr auto with_row_sums = set_member<&MatmulAttrs::row_sums>;

  bool has_kernel(const Node& product, const Node& sum) const {
    Node both = product;
    both.attrs = with_row_sums(product.attrs);
    both.out.push_back(sum.out[0]);
    return has_fast_kernel(both, types_of(graph_, both.in), types_of(graph_, both.out), backend_);
  }

  void fuse(const Node& product, const Node& sum) {
    const std::vector<Tensor> in = rewriter_.inputs_of(product);
    rewriter_.map(sum.out[0], rewriter_.replace(product, kMatmul, in, with_row_sums(product.attrs))[1]);
  }

  std::map<NodeId, Pair> pairs_;  // by the later of the two
  std::set<NodeId> moved_;        // the earlier ones
};

// If lookups are multiplied by a number (the square root of the width), so are their gradients before they are summed
// for the table. A GPU scales the sums instead: one launch less, and no copy of the gradients.

// c of the expression x * c
std::optional<double> constant_factor(const Expression& expression) {
  const std::vector<Instruction>& code = expression.code;
  if (code.size() != 3 || code[2].function != Scalar::kMul || code[2].a == code[2].b) return {};
  for (const size_t constant : {0, 1})
    if (code[constant].function == Scalar::kConstant && code[1 - constant].function == Scalar::kInput)
      return code[constant].constant;
  return {};
}

class EmbeddingScale final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kEmbeddingGrad) || node.attrs.as<EmbeddingGradAttrs>().scale != 1) return false;
    const Node* product = rewriter_.lone_producer(node.in[0], kPointwise);
    if (!product || product->in.size() != 1) return false;
    const auto factor = constant_factor(without_rounding(product->attrs.as<PointwiseAttrs>().expression));
    if (!factor) return false;
    EmbeddingGradAttrs attrs = node.attrs.as<EmbeddingGradAttrs>();
    attrs.scale = *factor;
    std::vector<Tensor> in = rewriter_.inputs_of(node);
    in[0] = rewriter_.operands(*product)[0];
    if (!has_kernel(node, kEmbeddingGrad, attrs, in)) return false;
    rewriter_.replace(node, kEmbeddingGrad, in, attrs);
    return true;
  }
};

// On a GPU, products for the gradients of small weights join those of other layers until together they fill it. The
// joined node follows its last product, so a gradient that is read before stays apart, as where ranks exchange
// gradients during the backward pass.

class WeightGradients final : public Fusion {
 public:
  WeightGradients(const Graph& graph, const Backend& backend) : Fusion(graph, backend) { find(); }

 private:
  static constexpr int64_t kFilling = 128;  // tiles: about as many as a GPU has multiprocessors
  // A block walks all rows. With more rows than this for each product cuBLASLt is faster (estimate: bench/NOTES.md).
  static constexpr int64_t kRowsForEach = 2048;

  bool take(const Node& node) override {
    const std::vector<NodeId>* group = find_value(group_of_, id_of(node));
    if (!group) return false;
    if (id_of(node) != group->back()) return true;
    std::vector<Tensor> in;
    for (const NodeId id : *group)
      for (const ValueId operand : graph_.node(id).in) in.push_back(rewriter_[operand]);
    const std::vector<Tensor> out = rewriter_.add(node, kWeightGradients, in, {});
    for (size_t i = 0; i < group->size(); ++i)
      rewriter_.map_results(graph_.node((*group)[i]), std::span(out).subspan(2 * i));
    return true;
  }

  void find() {
    if (!has_fast_kernel({.op = &kWeightGradients}, {}, {}, backend_)) return;
    std::vector<NodeId> group;
    int64_t tiles = 0;
    for (const Node& node : graph_.nodes()) {
      if (!is_small(node)) continue;
      group.push_back(id_of(node)), tiles += tiles_of(node);
      if (tiles >= kFilling) join(std::exchange(group, {})), tiles = 0;
    }
    join(std::move(group));
  }

  void join(std::vector<NodeId> group) {
    if (group.empty()) return;
    std::erase_if(group, [&, last = group.back()](NodeId id) {
      const auto is_early = [&](ValueId out) {
        const auto readers = matcher_.readers(out);
        return !readers.empty() && readers.front() <= last;
      };
      return std::ranges::any_of(graph_.node(id).out, is_early);
    });
    const int64_t rows = max_of<int64_t>(group, [&](NodeId id) { return rows_of(graph_.node(id)); });
    if (group.size() > 1 && rows <= kRowsForEach * std::ssize(group))
      for (const NodeId id : group) group_of_[id] = group;
  }

  bool is_small(const Node& node) const {
    if (!is(node, kMatmul)) return false;
    const auto& attrs = node.attrs.as<MatmulAttrs>();
    const auto is_matrix = [&](ValueId in) {
      const Shape& shape = graph_.value(in).type.shape;
      return shape.rank() == 2 && shape[1] % 8 == 0;
    };
    return attrs.trans_a && !attrs.trans_b && attrs.is_sum() && !attrs.pre_activation && !attrs.bias &&
           !attrs.accumulate && attrs.precision == Precision::kBf16 && std::ranges::all_of(node.in, is_matrix) &&
           tiles_of(node) < kFilling / 2;
  }

  int64_t rows_of(const Node& node) const { return graph_.value(node.in[0]).type.shape[0]; }
  int64_t tiles_of(const Node& node) const {
    const Shape& shape = graph_.value(node.out[0]).type.shape;
    return weight_tiles(shape[0], shape[1]);
  }

  std::map<NodeId, std::vector<NodeId>> group_of_;
};

// If a linear layer follows a pooled convolution, its input's gradient is as large as all pooled images and read once,
// by the gradient of the convolution's weight. That computes it for a few images at a time instead, in cache.

class PoolGradient final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    if (!is(node, kConvReluPoolWeightGrad) || node.in.size() != 3 || !rewriter_.lone_producer(node.in[2])) return false;
    const Node& flat = *matcher_.producer(node.in[2]);
    if (algebra_of(flat) != Algebra::kReshape) return false;
    const Node* product = rewriter_.lone_producer(flat.in[0], kMatmul);
    if (!product || !computes(product->attrs.as<MatmulAttrs>())) return false;
    const std::vector<Tensor> factors = rewriter_.operands(*product);
    // One row per image, and a kernel that takes the factors instead of their product.
    const std::array in{rewriter_[node.in[0]], rewriter_[node.in[1]], factors[0], factors[1]};
    if (factors[0].shape().rank() != 2 || factors[1].shape().rank() != 2 ||
        factors[0].dim(0) != graph_.value(node.in[2]).type.shape[0] || !has_kernel(node, *node.op, node.attrs, in))
      return false;
    rewriter_.replace(node, *node.op, in, node.attrs);
    return true;
  }

  static bool computes(const MatmulAttrs& attrs) {
    return !attrs.trans_a && !attrs.trans_b && !attrs.bias && !attrs.accumulate && !attrs.pre_activation &&
           attrs.is_sum() && attrs.precision == Precision::kF32;
  }
};
}  // namespace

Graph fuse_loss(const Graph& graph) { return FuseLoss(graph).run(); }

Graph fuse_bias_gradient(const Graph& graph, const Backend& backend) { return BiasGradient(graph, backend).run(); }

Graph group_weight_gradients(const Graph& graph, const Backend& backend) {
  return WeightGradients(graph, backend).run();
}

Graph fuse_embedding_scale(const Graph& graph, const Backend& backend) { return EmbeddingScale(graph, backend).run(); }

Graph fuse_pool_gradient(const Graph& graph, const Backend& backend) { return PoolGradient(graph, backend).run(); }
}  // namespace linnet

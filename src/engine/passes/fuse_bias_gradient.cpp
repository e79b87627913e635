// The gradient of a linear layer's bias sums the same rows that the product for its weight's gradient reads. A GPU's
// library adds them up on the way, which saves the launches of a sum of its own.
#include <algorithm>
#include <map>
#include <set>

#include "engine/ops/matmul/matmul.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class BiasGradient {
 public:
  BiasGradient(const Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) pair(node);
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      if (const auto found = pairs_.find(id); found != pairs_.end())
        fuse(graph_.node(found->second.product), graph_.node(found->second.sum));
      else if (!moved_.contains(id))
        rewriter_.copy(graph_.node(id));
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  struct Pair {
    NodeId product, sum;
  };

  NodeId id_of(const Node& node) const { return static_cast<NodeId>(&node - graph_.nodes().data()); }

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

  // A product for which `rows` is the first operand, transposed.
  bool pair_with_reader_of(ValueId rows, const Node& sum) {
    const Shape &shape = graph_.value(rows).type.shape, &sums = graph_.value(sum.out[0]).type.shape;
    if (shape.rank() != 2 || shape[-1] != sums[0]) return false;
    return std::ranges::any_of(matcher_.readers(rows), [&](NodeId reader) {
      return reader < graph_.node_count() && graph_.node(reader).in[0] == rows && pair(graph_.node(reader), sum);
    });
  }

  // The new node stands where the later of the two stood: by then all operands are there.
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

  static Attrs with_row_sums(const Node& product) {
    MatmulAttrs attrs = product.attrs.as<MatmulAttrs>();
    attrs.row_sums = true;
    return attrs;
  }

  bool has_kernel(const Node& product, const Node& sum) const {
    Node node = product;
    node.attrs = with_row_sums(product);
    node.out.push_back(sum.out[0]);
    std::vector<TensorType> in, out;
    for (const ValueId id : node.in) in.push_back(graph_.value(id).type);
    for (const ValueId id : node.out) out.push_back(graph_.value(id).type);
    return has_fast_kernel(node, in, out, backend_);
  }

  void fuse(const Node& product, const Node& sum) {
    const std::vector<Tensor> out =
        rewriter_.add(product, kMatmul, rewriter_.inputs_of(product), with_row_sums(product));
    rewriter_.map(product.out[0], out[0]);
    rewriter_.map(sum.out[0], out[1]);
  }

  const Graph& graph_;
  const Backend& backend_;
  const Matcher matcher_;
  Rewriter rewriter_;
  std::map<NodeId, Pair> pairs_;  // by the later of the two
  std::set<NodeId> moved_;        // the earlier ones
};

}  // namespace

Graph fuse_bias_gradient(const Graph& graph, const Backend& backend) { return BiasGradient(graph, backend).run(); }

}  // namespace linnet

// The end of a sub-layer becomes one node each way.
//
//   forward    [dropout ->] add -> layer_norm                     residual_norm
//   backward   layer_norm_grad [-> add] [-> dropout]              residual_norm_grad
//
// Pre-LN reads the sum again at the next sub-layer's end, post-LN does not; in the backward pass the addition is that
// of the residual stream's gradient (pre-LN), the dropout that of the branch.
#include <algorithm>
#include <set>
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class FuseResidualNorm : Fusion {
 public:
  explicit FuseResidualNorm(const Graph& graph) : Fusion(graph) { find_forward(); }

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (fused_additions_.contains(id) || rewriter_[node.out[0]].defined()) continue;
      if (is(node, kLayerNorm) && fuse_forward(id)) continue;
      if (is(node, kLayerNormGrad) && fuse_backward(id)) continue;
      rewriter_.copy(node);
    }
    return finish();
  }

 private:
  NodeId producer(ValueId value) const { return graph_.value(value).producer; }

  bool is_sum(NodeId id) const { return id != kNone && id < graph_.node_count() && matcher_.is_sum(graph_.node(id)); }

  bool is_dropout(NodeId id) const {
    return id != kNone && id < graph_.node_count() && is(graph_.node(id), kDropout) &&
           graph_.node(id).attrs.as<DropoutAttrs>().layout == DropoutLayout::kDense &&
           graph_.node(id).attrs.as<DropoutAttrs>().is_whole();
  }

  // Additions whose first reader is a norm: they are computed there.
  void find_forward() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& norm = graph_.node(id);
      if (!is(norm, kLayerNorm)) continue;
      const NodeId addition = producer(norm.in[0]);
      if (is_sum(addition) && matcher_.readers(norm.in[0]).front() == id) fused_additions_.insert(addition);
    }
  }

  bool fuse_forward(NodeId id) {
    const Node& norm = graph_.node(id);
    const NodeId addition = producer(norm.in[0]);
    if (!fused_additions_.contains(addition) || rewriter_[norm.in[0]].defined()) return false;
    ValueId x = graph_.node(addition).in[0], f = graph_.node(addition).in[1];
    if (!drops(f) && drops(x)) std::swap(x, f);
    ResidualNormAttrs attrs{.norm = norm.attrs.as<LayerNormAttrs>()};
    std::vector<Tensor> in{rewriter_[x], rewriter_[f]};
    for (size_t i = 1; i < norm.in.size(); ++i) in.push_back(rewriter_[norm.in[i]]);
    if (drops(f)) {
      const Node& dropout = graph_.node(producer(f));
      take_dropout(dropout, attrs);
      in[1] = rewriter_[dropout.in[0]];
      in.push_back(rewriter_[dropout.in[1]]);
    }
    const std::vector<Tensor> out = rewriter_.add(norm, kResidualNorm, in, attrs);
    rewriter_.map(norm.in[0], out[0]);
    for (size_t i = 0; i < 3; ++i) rewriter_.map(norm.out[i], out[i + 1]);
    return true;
  }

  // The value is a dropout's, for this addition alone.
  bool drops(ValueId value) const { return is_dropout(producer(value)) && matcher_.has_one_reader(value); }

  static void take_dropout(const Node& dropout, ResidualNormAttrs& attrs) {
    attrs.probability = dropout.attrs.as<DropoutAttrs>().probability;
    attrs.site = dropout.attrs.as<DropoutAttrs>().site;
  }

  bool fuse_backward(NodeId id) {
    const Node& grad = graph_.node(id);
    ResidualNormAttrs attrs{.norm = grad.attrs.as<LayerNormAttrs>()};
    std::vector<Tensor> in = rewriter_.inputs_of(grad);
    ValueId total = grad.out[0];
    if (matcher_.has_one_reader(total) && is_sum(matcher_.readers(total)[0])) {
      const Node& addition = graph_.node(matcher_.readers(total)[0]);
      const ValueId other = other_operand(addition, total);
      if (producer(other) < id) {
        attrs.dsum = true;
        in.push_back(rewriter_[other]);
        total = addition.out[0];
      }
    }
    const auto readers = matcher_.readers(total);
    const auto dropout =
        std::find_if(readers.begin(), readers.end(), [&](NodeId reader) { return is_dropout(reader); });
    if (dropout != readers.end()) {
      take_dropout(graph_.node(*dropout), attrs);
      in.push_back(rewriter_[graph_.node(*dropout).in[1]]);
    }
    if (in.size() == grad.in.size()) return false;
    const std::vector<Tensor> out = rewriter_.replace(grad, kResidualNormGrad, in, attrs);
    rewriter_.map(total, out[0]);
    if (dropout != readers.end()) rewriter_.map(graph_.node(*dropout).out[0], out.back());
    return true;
  }

  std::set<NodeId> fused_additions_;
};

}  // namespace

Graph fuse_residual_norm(const Graph& graph) { return FuseResidualNorm(graph).run(); }

}  // namespace linnet

// The end of a sub-layer becomes one node each way.
//
//   forward    [dropout ->] add -> layer_norm                     residual_norm
//   backward   layer_norm_grad [-> add] [-> dropout]              residual_norm_grad
//
// Pre-LN reads the sum again at the next sub-layer's end, post-LN does not; in the backward pass the addition is that
// of the residual stream's gradient (pre-LN), the dropout that of the branch.
#include <algorithm>
#include <set>

#include "ir/op.h"
#include "ops/dropout/dropout.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/residual_norm/residual_norm.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

class FuseResidualNorm {
 public:
  explicit FuseResidualNorm(const Graph& graph)
      : graph_(graph), rewriter_(graph), readers_(static_cast<size_t>(graph.value_count())) {
    for (NodeId id = 0; id < graph.node_count(); ++id)
      for (const ValueId in : graph.node(id).in) readers_[index(in)].push_back(id);
    for (const GraphOutput& output : graph.outputs()) readers_[index(output.value)].push_back(graph.node_count());
    for (const StateUpdate& update : graph.updates()) readers_[index(update.value)].push_back(graph.node_count());
    find_forward();
  }

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (fused_additions_.contains(id) || rewriter_[node.out[0]].defined()) continue;
      if (node.op == &kLayerNorm && fuse_forward(id)) continue;
      if (node.op == &kLayerNormGrad && fuse_backward(id)) continue;
      rewriter_.copy(node);
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  static size_t index(int32_t id) { return static_cast<size_t>(id); }

  NodeId producer(ValueId value) const { return graph_.value(value).producer; }

  bool is_full_add(NodeId id) const {
    if (id == kNone || id >= graph_.node_count()) return false;
    const Node& node = graph_.node(id);
    if (node.op != &kPointwise || node.in.size() != 2) return false;
    const auto& code = node.attrs.as<PointwiseAttrs>().expression.code;
    return code.size() == 3 && code[2].function == Scalar::kAdd &&
           graph_.value(node.in[0]).type == graph_.value(node.in[1]).type && node.in[0] != node.in[1];
  }

  bool is_dropout(NodeId id) const {
    return id != kNone && id < graph_.node_count() && graph_.node(id).op == &kDropout &&
           graph_.node(id).attrs.as<DropoutAttrs>().layout == DropoutLayout::kDense;
  }

  // Additions whose first reader is a norm: they are computed there.
  void find_forward() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& norm = graph_.node(id);
      if (norm.op != &kLayerNorm) continue;
      const NodeId addition = producer(norm.in[0]);
      if (is_full_add(addition) && readers_[index(norm.in[0])].front() == id) fused_additions_.insert(addition);
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
  bool drops(ValueId value) const { return is_dropout(producer(value)) && readers_[index(value)].size() == 1; }

  static void take_dropout(const Node& dropout, ResidualNormAttrs& attrs) {
    attrs.probability = dropout.attrs.as<DropoutAttrs>().probability;
    attrs.site = dropout.attrs.as<DropoutAttrs>().site;
  }

  bool fuse_backward(NodeId id) {
    const Node& grad = graph_.node(id);
    ResidualNormAttrs attrs{.norm = grad.attrs.as<LayerNormAttrs>()};
    std::vector<Tensor> in = rewriter_.inputs_of(grad);
    ValueId total = grad.out[0];
    if (readers_[index(total)].size() == 1 && is_full_add(readers_[index(total)][0])) {
      const Node& addition = graph_.node(readers_[index(total)][0]);
      const ValueId other = addition.in[addition.in[0] == total ? 1 : 0];
      if (producer(other) < id) {
        attrs.dsum = true;
        in.push_back(rewriter_[other]);
        total = addition.out[0];
      }
    }
    const auto& readers = readers_[index(total)];
    const auto dropout =
        std::find_if(readers.begin(), readers.end(), [&](NodeId reader) { return is_dropout(reader); });
    if (dropout != readers.end()) {
      take_dropout(graph_.node(*dropout), attrs);
      in.push_back(rewriter_[graph_.node(*dropout).in[1]]);
    }
    if (in.size() == grad.in.size()) return false;
    const std::vector<Tensor> out = rewriter_.add(grad, kResidualNormGrad, in, attrs);
    for (size_t i = 0; i < grad.out.size(); ++i) rewriter_.map(grad.out[i], out[i]);
    rewriter_.map(total, out[0]);
    if (dropout != readers.end()) rewriter_.map(graph_.node(*dropout).out[0], out.back());
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<std::vector<NodeId>> readers_;  // of each value, in order; what leaves the graph is read at its end
  std::set<NodeId> fused_additions_;
};

}  // namespace

Graph fuse_residual_norm(const Graph& graph) { return FuseResidualNorm(graph).run(); }

}  // namespace linnet

#include <set>
#include <vector>
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// Fuses the addition of a residual and ReLU into a batch norm in training, so that the result is written once.
//
//   forward    batch_norm [-> add] -> relu       batch_norm+residual+relu
//   backward   relu's gradient -> batch_norm_grad   batch_norm_grad+relu, where there is no residual
//
// The gradient recomputes from the norm's operands which elements were above zero. With a residual, ReLU's gradient is
// also the residual's and stays a node. In fp32 the bits stay; in bf16 the sum before ReLU is not rounded. A block's
// recomputation is fused like its first computation.

class FuseBatchNorm final : public Fusion {
  using Fusion::Fusion;

  bool take(const Node& node) override {
    return (is(node, kBatchNorm) && fuse_forward(node)) || (is(node, kBatchNormGrad) && fuse_backward(node));
  }

  bool is_relu(const Node* node) const {
    return is(node, kPointwise) && without_rounding(node->attrs.as<PointwiseAttrs>().expression) == relu_.value;
  }

  bool fuse_forward(const Node& norm) {
    const Node* reader = matcher_.one_reader(norm.out[0]);
    const Node* sum = reader && matcher_.is_sum(*reader) ? reader : nullptr;
    std::vector<Tensor> in = rewriter_.inputs_of(norm);
    if (sum) {
      in.push_back(rewriter_[other_operand(*sum, norm.out[0])]);
      if (!in.back().defined()) return false;  // it is computed after the norm
      reader = matcher_.one_reader(sum->out[0]);
    }
    if (!is_relu(reader)) return false;
    BatchNormAttrs attrs = norm.attrs.as<BatchNormAttrs>();
    attrs.residual = sum != nullptr, attrs.relu = true;
    if (!has_kernel(norm, kBatchNorm, attrs, in)) return false;
    const Tensor result = rewriter_.replace(norm, kBatchNorm, in, attrs)[0];
    if (sum) rewriter_.map(sum->out[0], result);
    rewriter_.map(reader->out[0], result);
    return true;
  }

  bool fuse_backward(const Node& gradient) {
    const Node* gate = matcher_.producer(gradient.in[0]);
    if (!is(gate, kPointwise) || !matcher_.has_one_reader(gradient.in[0]) ||
        gate->attrs.as<PointwiseAttrs>().expression != relu_.gradient)
      return false;
    const Node* activation = matcher_.producer(gate->in[relu_.aux]);
    if (!is_relu(activation)) return false;
    const Node* norm = matcher_.producer(activation->in[0]);
    if (!is(norm, kBatchNorm) || norm->out[0] != activation->in[0] || norm->in[0] != gradient.in[1] ||
        norm->in[1] != gradient.in[2] || norm->out[1] != gradient.in[3] || norm->out[2] != gradient.in[4])
      return false;
    BatchNormAttrs attrs = gradient.attrs.as<BatchNormAttrs>();
    attrs.relu = true;
    std::vector<Tensor> in = rewriter_.inputs_of(gradient);
    in[0] = rewriter_[gate->in[relu_.dy]];
    in.push_back(rewriter_[norm->in[2]]);
    if (!has_kernel(gradient, kBatchNormGrad, attrs, in)) return false;
    rewriter_.replace(gradient, kBatchNormGrad, in, attrs);
    return true;
  }

  const TracedActivation& relu_ = traced_activations().front();
};

// Fuses the end of a sub-layer into one node each way.
//
//   forward    [dropout ->] add -> layer_norm                     residual_norm
//   backward   layer_norm_grad [-> add] [-> dropout]              residual_norm_grad
//
// Pre-LN reads the sum again at the next sub-layer's end, post-LN does not. In the backward pass the addition is that
// of the residual stream's gradient (pre-LN), the dropout that of the branch.

class FuseResidualNorm final : public Fusion {
 public:
  explicit FuseResidualNorm(const Graph& graph) : Fusion(graph) { find_forward(); }

 private:
  bool take(const Node& node) override {
    return fused_additions_.contains(&node) || (is(node, kLayerNorm) && fuse_forward(node)) ||
           (is(node, kLayerNormGrad) && fuse_backward(node));
  }

  bool is_sum(const Node* node) const { return node && matcher_.is_sum(*node); }

  static bool is_dropout(const Node* node) {
    if (!is(node, kDropout)) return false;
    const auto& attrs = node->attrs.as<DropoutAttrs>();
    return attrs.layout == DropoutLayout::kDense && attrs.is_whole();
  }

  // Finds additions whose first reader is a norm.
  void find_forward() {
    for (const Node& norm : graph_.nodes()) {
      if (!is(norm, kLayerNorm)) continue;
      const Node* addition = matcher_.producer(norm.in[0]);
      if (is_sum(addition) && matcher_.readers(norm.in[0]).front() == id_of(norm)) fused_additions_.insert(addition);
    }
  }

  bool fuse_forward(const Node& norm) {
    const Node* addition = matcher_.producer(norm.in[0]);
    if (!fused_additions_.contains(addition) || rewriter_[norm.in[0]].defined()) return false;
    ValueId x = addition->in[0], f = addition->in[1];
    if (!drops(f) && drops(x)) std::swap(x, f);
    ResidualNormAttrs attrs{.norm = norm.attrs.as<LayerNormAttrs>()};
    std::vector<Tensor> in{rewriter_[x], rewriter_[f]};
    for (size_t i = 1; i < norm.in.size(); ++i) in.push_back(rewriter_[norm.in[i]]);
    if (drops(f)) {
      const Node& dropout = *matcher_.producer(f);
      take_dropout(dropout, attrs);
      in[1] = rewriter_[dropout.in[0]];
      in.push_back(rewriter_[dropout.in[1]]);
    }
    const std::vector<Tensor> out = rewriter_.add(norm, kResidualNorm, in, attrs);
    rewriter_.map(norm.in[0], out[0]);
    rewriter_.map_results(norm, std::span(out).subspan(1));
    return true;
  }

  // Whether the value is a dropout's that only this addition reads.
  bool drops(ValueId value) const { return is_dropout(matcher_.producer(value)) && matcher_.has_one_reader(value); }

  static void take_dropout(const Node& dropout, ResidualNormAttrs& attrs) {
    attrs.probability = dropout.attrs.as<DropoutAttrs>().probability;
    attrs.site = dropout.attrs.as<DropoutAttrs>().site;
  }

  bool fuse_backward(const Node& grad) {
    ResidualNormAttrs attrs{.norm = grad.attrs.as<LayerNormAttrs>()};
    std::vector<Tensor> in = rewriter_.inputs_of(grad);
    ValueId total = grad.out[0];
    if (const Node* addition = matcher_.one_reader(total); is_sum(addition)) {
      const ValueId other = other_operand(*addition, total);
      if (graph_.value(other).producer < id_of(grad)) {
        attrs.dsum = true;
        in.push_back(rewriter_[other]);
        total = addition->out[0];
      }
    }
    const Node* dropout = dropout_of(total);
    if (dropout) {
      take_dropout(*dropout, attrs);
      in.push_back(rewriter_[dropout->in[1]]);
    }
    if (in.size() == grad.in.size()) return false;
    const std::vector<Tensor> out = rewriter_.replace(grad, kResidualNormGrad, in, attrs);
    rewriter_.map(total, out[0]);
    if (dropout) rewriter_.map(dropout->out[0], out.back());
    return true;
  }

  // The first dropout that reads the value.
  const Node* dropout_of(ValueId value) const {
    for (const NodeId reader : matcher_.readers(value))
      if (reader < graph_.node_count() && is_dropout(&graph_.node(reader))) return &graph_.node(reader);
    return nullptr;
  }

  std::set<const Node*> fused_additions_;
};

// On a GPU, blocks sum the gradients of a norm's weight and bias over parts of the rows, and a second kernel adds up
// the parts. One kernel does so for all norms:
//
//   norm_grad -> dx, dweight, dbias        norm_grad -> dx, parts;  all parts -> norm_sums -> every dweight and dbias
//
// It follows the last norm, so a norm whose gradients are read before that stays as it is, as where ranks exchange
// gradients during the backward pass.

class JoinNormSums final : public Fusion {
 public:
  JoinNormSums(const Graph& graph, const Backend& backend) : Fusion(graph, backend) { find(); }

 private:
  bool take(const Node& node) override {
    if (!joined_.contains(id_of(node))) return false;
    Attrs attrs = set_member<&LayerNormAttrs::in_parts>(norm_of(node));
    if (is(node, kResidualNormGrad)) {
      ResidualNormAttrs residual = node.attrs.as<ResidualNormAttrs>();
      residual.norm = attrs.as<LayerNormAttrs>(), attrs = residual;
    }
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, rewriter_.inputs_of(node), attrs);
    const size_t parameters = norm_of(node).parameters();
    rewriter_.map(node.out[0], out[0]);
    if (node.out.size() > 1 + parameters) rewriter_.map(node.out.back(), out.back());
    parts_.push_back(out[1]);
    sums_.insert(sums_.end(), node.out.begin() + 1, node.out.begin() + 1 + static_cast<ptrdiff_t>(parameters));
    if (id_of(node) == *joined_.rbegin()) {
      const std::vector<Tensor> sums = rewriter_.add(node, kNormSums, parts_, {});
      for (size_t i = 0; i < sums.size(); ++i) rewriter_.map(sums_[i], sums[i]);
    }
    return true;
  }

  static bool is_gradient(const Node& node) { return is(node, kLayerNormGrad) || is(node, kResidualNormGrad); }

  static LayerNormAttrs norm_of(const Node& node) {
    return is(node, kLayerNormGrad) ? node.attrs.as<LayerNormAttrs>() : node.attrs.as<ResidualNormAttrs>().norm;
  }

  void find() {
    if (!has_fast_kernel({.op = &kNormSums}, {}, {}, backend_)) return;
    for (const Node& node : graph_.nodes())
      if (is_gradient(node) && first_reader(node) != kNone) joined_.insert(id_of(node));
    if (!joined_.empty())
      std::erase_if(joined_, [&, last = *joined_.rbegin()](NodeId id) { return first_reader(graph_.node(id)) < last; });
    if (joined_.size() < 2) joined_.clear();
  }

  // Of the gradients of weight and bias; kNone: nothing reads them.
  NodeId first_reader(const Node& node) const {
    NodeId first = kNone;
    for (size_t i = 1; i <= norm_of(node).parameters(); ++i)
      for (const NodeId reader : matcher_.readers(node.out[i]))
        if (first == kNone || reader < first) first = reader;
    return first;
  }

  std::set<NodeId> joined_;  // in order; the sums follow the last
  std::vector<Tensor> parts_;
  std::vector<ValueId> sums_;
};
}  // namespace

Graph fuse_batch_norm(const Graph& graph, const Backend& backend) { return FuseBatchNorm(graph, backend).run(); }

Graph fuse_residual_norm(const Graph& graph) { return FuseResidualNorm(graph).run(); }

Graph join_norm_sums(const Graph& graph, const Backend& backend) { return JoinNormSums(graph, backend).run(); }
}  // namespace linnet

// A linear cross-entropy and its gradient read the same operands, and the gradient computes the same logits: it gives
// the loss as well, in the forward node's location. What it needs besides is moved before it: the gradient of the loss,
// a scalar that does not depend on the loss; and, where micro-steps add up gradients, the weight's gradient so far, to
// which it then adds its own. (A tied weight's gradient gets further parts later, so the sum does not start with it.)
#include <algorithm>
#include <map>

#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class FuseLoss {
 public:
  explicit FuseLoss(const Graph& graph)
      : graph_(graph), matcher_(graph), rewriter_(graph), done_(static_cast<size_t>(graph.node_count())) {}

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      if (done_[static_cast<size_t>(id)] || rename(graph_.node(id))) continue;
      if (is(graph_.node(id), kLinearCrossEntropy) && fuse(id)) continue;
      copy(id);
    }
    return rewriter_.finish();
  }

 private:
  void copy(NodeId id) {
    rewriter_.copy(graph_.node(id));
    done_[static_cast<size_t>(id)] = true;
  }

  bool rename(const Node& node) {
    const auto found = renamed_.find(node.out[0]);
    if (found == renamed_.end()) return false;
    rewriter_.map(node.out[0], rewriter_[found->second]);
    return true;
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
    for (size_t i = 0; i < grad.out.size(); ++i) rewriter_.map(grad.out[i], out[i]);
    rewriter_.map(node.out[0], out.back());
    done_[static_cast<size_t>(forward)] = done_[static_cast<size_t>(gradient)] = true;
    return true;
  }

  // The gradient node of the same loss, when what it needs can be known before the loss.
  NodeId gradient_of(NodeId forward) const {
    const Node& node = graph_.node(forward);
    for (NodeId id = forward + 1; id < graph_.node_count(); ++id) {
      const Node& grad = graph_.node(id);
      if (is(grad, kLinearCrossEntropyGrad) && grad.in.size() == node.in.size() + 1 &&
          std::equal(node.in.begin(), node.in.end(), grad.in.begin()) && is_of_same_loss(grad.attrs, node.attrs) &&
          can_move_before(grad.in.back(), forward))
        return id;
    }
    return kNone;
  }

  static bool is_of_same_loss(const Attrs& gradient, const Attrs& loss) {
    auto attrs = gradient.as<LinearCrossEntropyAttrs>();
    attrs.weight_gradient = true;
    return Attrs(attrs) == loss;
  }

  // Scalars and other names of a tensor cost nothing to have early.
  bool can_move_before(ValueId value, NodeId location) const {
    const NodeId producer = graph_.value(value).producer;
    if (producer < location) return true;  // an input, or there already
    const Node& node = graph_.node(producer);
    const Algebra algebra = algebra_of(node);
    const bool renames = algebra == Algebra::kReshape || algebra == Algebra::kSplit;
    if (producer == location || !(renames || graph_.value(value).type.shape.elements() == 1)) return false;
    return std::all_of(node.in.begin(), node.in.end(), [&](ValueId in) { return can_move_before(in, location); });
  }

  void move_before(ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    if (producer == kNone || done_[static_cast<size_t>(producer)]) return;
    for (ValueId in : graph_.node(producer).in) move_before(in);
    copy(producer);
  }

  // In start + (part + later parts), where nothing else reads the sums: `start`, which the part is then added to. The
  // outer sum becomes another name of what is in the brackets. kNone: there is nothing to start from.
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

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  std::vector<bool> done_;  // nodes of the old graph
  std::map<ValueId, ValueId> renamed_;
};

}  // namespace

Graph fuse_loss(const Graph& graph) { return FuseLoss(graph).run(); }

}  // namespace linnet

#include "engine/passes/gradient.h"

#include <algorithm>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/matcher.h"

namespace linnet {
namespace {

// Which values depend on a w: only through them does gradient flow.
std::vector<bool> depends_on(const Graph& graph, std::span<const Tensor> wrt) {
  std::vector<bool> depends(static_cast<size_t>(graph.value_count()));
  for (const Tensor& w : wrt) depends[static_cast<size_t>(w.id)] = true;
  for (const Node& node : graph.nodes()) {
    if (is(node, kStopGradient)) continue;
    bool any = false;
    for (ValueId in : node.in) any = any || depends[static_cast<size_t>(in)];
    for (ValueId out : node.out)
      if (is_float(graph.value(out).type.dtype))
        depends[static_cast<size_t>(out)] = any || depends[static_cast<size_t>(out)];
  }
  return depends;
}

class Backward {
 public:
  Backward(Graph& graph, std::span<const Tensor> wrt)
      : graph_(graph), depends_(depends_on(graph, wrt)), gradient_(depends_.size()) {}

  void run(Tensor loss) {
    const NodeId last = graph_.value(loss.id).producer;
    const ScopeId scope = graph_.scope();
    if (last != kNone) graph_.set_origin(graph_.node(last).where);
    gradient_[static_cast<size_t>(loss.id)] = fill(graph_, loss.type(), 1);
    for (NodeId id = last; id >= 0; --id) differentiate(id);
    graph_.set_scope(scope);
    graph_.set_origin(std::nullopt);
  }

  Tensor of(Tensor w) const { return gradient_[static_cast<size_t>(w.id)]; }

 private:
  void differentiate(NodeId id) {
    const Node node = graph_.node(id);  // a copy: the graph grows below
    std::vector<Tensor> in, out, out_grad;
    std::vector<uint8_t> wanted;
    bool flows = false;
    for (ValueId v : node.out) {
      out.push_back({&graph_, v});
      out_grad.push_back(gradient_[static_cast<size_t>(v)]);
      flows = flows || out_grad.back().defined();
    }
    for (ValueId v : node.in) {
      in.push_back({&graph_, v});
      wanted.push_back(depends_[static_cast<size_t>(v)]);
    }
    if (!flows || std::ranges::find(wanted, 1) == wanted.end()) return;
    if (!node.op->gradient) throw Error(ErrorKind::kShape, graph_.where_text(id) + ": the op has no gradient");
    graph_.set_scope(node.scope);
    graph_.set_origin(node.where);
    const std::vector<Tensor> gradients = node.op->gradient({graph_, node, in, out, out_grad, wanted});
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined() && depends_[static_cast<size_t>(node.in[i])]) add(node, node.in[i], gradients[i]);
  }

  void add(const Node& node, ValueId value, Tensor part) {
    Tensor& sum = gradient_[static_cast<size_t>(value)];
    if (part.type() != graph_.value(value).type)
      fail_internal(std::string("the gradient of ") + node.op->name + " has type " + part.type().text() +
                    ", its operand " + graph_.value(value).type.text());
    sum = sum.defined() ? sum + part : part;
  }

  Graph& graph_;
  std::vector<bool> depends_;
  std::vector<Tensor> gradient_;  // by value of the forward graph
};

}  // namespace

std::vector<Tensor> gradients(Tensor loss, std::span<const Tensor> wrt) {
  if (loss.shape().elements() != 1)
    throw Error(ErrorKind::kShape, "a gradient is taken of a scalar, not of " + loss.type().text());
  Graph& graph = *loss.graph;
  Backward backward(graph, wrt);
  backward.run(loss);
  std::vector<Tensor> result;
  for (const Tensor& w : wrt) {
    const Tensor gradient = backward.of(w);
    result.push_back(gradient.defined() ? gradient : fill(graph, w.type(), 0));
  }
  return result;
}

}  // namespace linnet

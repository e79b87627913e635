#include <algorithm>
#include <map>
#include <utility>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// The values that depend on a w: only through them does gradient flow.
std::vector<bool> depends_on(const Graph& graph, std::span<const Tensor> wrt) {
  std::vector<bool> depends(graph.value_count());
  for (const Tensor& w : wrt) depends[w.id] = true;
  for (const Node& node : graph.nodes()) {
    if (is(node, kStopGradient)) continue;
    const bool any = std::ranges::any_of(node.in, [&](ValueId in) { return depends[in]; });
    for (ValueId out : node.out)
      if (is_float(graph.value(out).type.dtype)) depends[out] = any || depends[out];
  }
  return depends;
}

// How many nodes split each value.
std::vector<int> count_splits(const Graph& graph) {
  std::vector<int> counts(graph.value_count());
  for (const Node& node : graph.nodes())
    if (is(node, kSplit)) ++counts[node.in[0]];
  return counts;
}

// The gradient of a part of a value.
struct Piece {
  int axis;
  int64_t start, size;
  Tensor gradient;
};

// Concatenates pieces that do not overlap, with zeros between them.
Tensor join_pieces(Graph& graph, const std::vector<Piece>& pieces, const TensorType& whole) {
  const int axis = pieces.front().axis;
  std::vector<Tensor> parts;
  int64_t end = 0;
  const auto fill_to = [&](int64_t start) {
    if (start != end) parts.push_back(fill(graph, {whole.dtype, with_size(whole.shape, axis, start - end)}, 0));
  };
  for (const Piece& piece : pieces) {
    fill_to(piece.start);
    parts.push_back(piece.gradient);
    end = piece.start + piece.size;
  }
  fill_to(whole.shape[axis]);
  return concat(parts, axis);
}

class Backward {
 public:
  Backward(Graph& graph, std::span<const Tensor> wrt)
      : graph_(graph), depends_(depends_on(graph, wrt)), splits_(count_splits(graph)), gradient_(depends_.size()) {}

  void run(Tensor loss) {
    const NodeId last = graph_.value(loss.id).producer;
    const ScopeId scope = graph_.scope();
    if (last != kNone) graph_.set_origin(graph_.node(last).where);
    gradient_[loss.id] = fill(graph_, loss.type(), 1);
    for (NodeId id = last; id >= 0; --id) differentiate(id);
    while (!pieces_.empty()) finish_pieces(pieces_.begin()->first);
    graph_.set_scope(scope);
    graph_.set_origin(std::nullopt);
  }

  Tensor of(Tensor w) const { return gradient_[w.id]; }

 private:
  void differentiate(NodeId id) {
    const Node node = graph_.node(id);  // a copy: the graph grows below
    for (ValueId v : node.out) finish_pieces(v);
    const auto tensor = [&](ValueId v) { return Tensor{&graph_, v}; };
    const std::vector<Tensor> in = mapped(node.in, tensor), out = mapped(node.out, tensor);
    const std::vector<Tensor> out_grad = mapped(node.out, [&](ValueId v) { return gradient_[v]; });
    const auto wanted = mapped<uint8_t>(node.in, [&](ValueId v) { return depends_[v]; });
    if (std::ranges::none_of(out_grad, &Tensor::defined) || !contains(wanted, 1)) return;
    if (is(node, kSplit) && splits_[node.in[0]] > 1) return keep_pieces(node, out, out_grad);
    if (!node.op->gradient)
      throw Error(ErrorKind::kShape,
          graph_.where_text(id) + ": the op has no gradient" +
              (std::string_view(node.op->name).ends_with("_grad") ? ", so there is no second derivative through it"
                                                                  : ""));
    graph_.set_scope(node.scope);
    graph_.set_origin(node.where);
    const std::vector<Tensor> gradients = node.op->gradient({graph_, node, in, out, out_grad, wanted});
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined() && depends_[node.in[i]]) add(node, node.in[i], gradients[i]);
  }

  // For a value that several nodes split, as slices do: each alone would give a gradient of the whole.
  void keep_pieces(const Node& node, std::span<const Tensor> out, std::span<const Tensor> out_grad) {
    const int axis = node.attrs.as<SplitAttrs>().axis;
    std::vector<Piece>& pieces = pieces_[node.in[0]];
    int64_t start = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t size = out[i].dim(axis);
      if (out_grad[i].defined()) pieces.push_back({axis, start, size, out_grad[i]});
      start += size;
    }
  }

  // Called when all readers of the value were visited. Overlapping pieces go into several sums.
  void finish_pieces(ValueId value) {
    auto found = pieces_.extract(value);
    if (found.empty()) return;
    std::vector<Piece>& pieces = found.mapped();
    std::ranges::stable_sort(pieces, {}, [](const Piece& piece) { return std::pair(piece.axis, piece.start); });
    std::vector<std::vector<Piece>> layers;
    for (Piece& piece : pieces) {
      const auto fits = [&](const std::vector<Piece>& layer) {
        const Piece& last = layer.back();
        return last.axis == piece.axis && last.start + last.size <= piece.start;
      };
      const auto layer = std::ranges::find_if(layers, fits);
      (layer == layers.end() ? layers.emplace_back() : *layer).push_back(std::move(piece));
    }
    const TensorType type = graph_.value(value).type;
    Tensor& sum = gradient_[value];
    for (const std::vector<Piece>& layer : layers) {
      const Tensor joined = join_pieces(graph_, layer, type);
      sum = sum.defined() ? sum + joined : joined;
    }
  }

  void add(const Node& node, ValueId value, Tensor part) {
    Tensor& sum = gradient_[value];
    if (part.type() != graph_.value(value).type)
      fail_internal("the gradient of ", node.op->name, " has type ", part.type().text(), ", its operand ",
          graph_.value(value).type.text());
    sum = sum.defined() ? sum + part : part;
  }

  Graph& graph_;
  std::vector<bool> depends_;
  std::vector<int> splits_;                       // by value: nodes that cut it
  std::map<ValueId, std::vector<Piece>> pieces_;  // of values whose readers are still visited
  std::vector<Tensor> gradient_;                  // by value of the forward graph
};
}  // namespace

std::vector<Tensor> gradients(Tensor loss, std::span<const Tensor> wrt) {
  if (loss.shape().elements() != 1)
    throw Error(ErrorKind::kShape, "a gradient is taken of a scalar, not of " + loss.type().text());
  Graph& graph = *loss.graph;
  Backward backward(graph, wrt);
  backward.run(loss);
  return mapped(wrt, [&](const Tensor& w) {
    const Tensor gradient = backward.of(w);
    return gradient.defined() ? gradient : fill(graph, w.type(), 0);
  });
}
}  // namespace linnet

// Computes the large layers of a convolutional network for a few images at a time, so that a layer's result is still in
// cache when the next one reads it: a batch of 8 images of 112 x 112 x 96 is 39 MB. It also takes less memory. Small
// layers keep the whole batch, for which filters are read once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>
#include "engine/ops/attention/attention.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// A layer is large from kLarge bytes of a batch on; a group has up to kGroup bytes, a part of the shared cache.
constexpr size_t kLarge = 8 << 20, kGroup = 4 << 20;
// At most this many small layers between two large ones are computed in groups too.
constexpr int kBetween = 6;
constexpr size_t kOperandBits = 31;  // of a node that is computed in groups

bool is_elementwise(const Node& node) {
  return algebra_of(node) == Algebra::kElementwise || algebra_of(node) == Algebra::kAdd;
}
bool is_layer(const Node& node) { return is(node, kConv2d) || is(node, kMatmul) || is(node, kAttention); }

class Groups {
 public:
  explicit Groups(const Graph& graph)
      : graph_(graph), matcher_(graph), rewriter_(graph), operands_(graph.node_count()) {
    const auto first = std::ranges::find_if(graph.nodes(), [](const Node& node) { return is(node, kConv2d); });
    images_ = first == graph.nodes().end() ? 1 : shape(first->in[0])[0];
    if (images_ > 1) find_operands();
  }

  Graph run() {
    for (NodeId id = 0; id < graph_.node_count();) {
      const NodeId end = end_of_segment(id);
      if (end == id) rewriter_.copy(graph_.node(id++));
      else rewrite(std::exchange(id, end), end);
    }
    return rewriter_.finish();
  }

 private:
  const Shape& shape(ValueId value) const { return graph_.value(value).type.shape; }
  // The first axis has images, or parts of images, in order.
  bool can_be_cut(ValueId value) const {
    return shape(value).rank() >= 2 && shape(value)[0] > 0 && shape(value)[0] % images_ == 0;
  }

  void find_operands() {
    std::vector<bool> depends(graph_.value_count());  // on the images
    for (const GraphInput& input : graph_.inputs())
      depends[input.value] = can_be_cut(input.value) && !is_computed_once(input.name);
    for (const Node& node : graph_.nodes()) {
      unsigned dependent = 0;
      for (size_t i = 0; i < node.in.size(); ++i)
        if (depends[node.in[i]]) dependent |= i < kOperandBits ? 1u << i : ~0u;
      for (const ValueId out : node.out) depends[out] = dependent != 0;
      const unsigned cut = node.in.size() <= kOperandBits ? operands_to_cut(node) : 0;
      const bool is_complete = dependent != 0 && (dependent & ~cut) == 0 &&
                               std::ranges::all_of(node.out, [&](ValueId out) { return can_be_cut(out); });
      if (is_complete) operands_[&node - graph_.nodes().data()] = cut;
    }
  }

  // Bit i: a share of the results' rows depends on the same share of operand i's rows alone. 0: not so, or unknown.
  unsigned operands_to_cut(const Node& node) const {
    unsigned bits = 0;
    for (size_t i = 0; i < node.in.size(); ++i) bits |= unsigned{can_be_cut(node.in[i])} << i;
    const Shape &first = shape(node.in.empty() ? node.out[0] : node.in[0]), &result = shape(node.out[0]);
    const Algebra algebra = algebra_of(node);
    if (is_elementwise(node)) {
      for (size_t i = 0; i < node.in.size(); ++i)
        if (shape(node.in[i]).rank() < result.rank()) bits &= ~(1u << i);
      return bits;
    }
    if (algebra == Algebra::kSplit || algebra == Algebra::kConcat)
      return node.op->axis(node) > 0 && bits == (1u << node.in.size()) - 1 ? bits : 0;
    if (algebra == Algebra::kReshape) return bits;
    if (is(node, kPermute)) return node.attrs.as<PermuteAttrs>().order[0] == 0 ? bits : 0;
    if (is(node, kBroadcast) || is(node, kReduce))
      return first.rank() == result.rank() && first[0] == result[0] ? bits : 0;
    if (is(node, kConv2d) || is(node, kMaxPool) || is(node, kLayerNorm) || is(node, kSoftmax)) return bits & 1;
    if (is(node, kMatmul)) {
      if (shape(node.in[1]).rank() > 2) return bits == 3 ? bits : 0;
      return first.rank() > 2 || !node.attrs.as<MatmulAttrs>().trans_a ? bits & 1 : 0;
    }
    if (is(node, kAttention)) return node.in.size() == kAttentionFixed ? bits : 0;
    return 0;
  }

  size_t largest(NodeId id) const {
    const Node& node = graph_.node(id);
    auto most = max_of<size_t>(node.out, [&](ValueId out) { return graph_.value(out).type.bytes(); });
    for (size_t i = 0; i < node.in.size(); ++i)
      if (operands_[id] >> i & 1) most = std::max(most, graph_.value(node.in[i]).type.bytes());
    return most;
  }

  // The end of a run of nodes from `begin` on that is worth computing in groups; `begin` if there is none.
  NodeId end_of_segment(NodeId begin) const {
    if (operands_[begin] == 0) return begin;
    std::vector<bool> computed(graph_.value_count());
    int layers = 0, small = 0;
    NodeId end = begin;
    for (NodeId id = begin; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (operands_[id] == 0) {
        if (std::ranges::any_of(node.in, [&](ValueId in) { return computed[in]; })) break;
        continue;
      }
      for (const ValueId out : node.out) computed[out] = true;
      const bool is_large = largest(id) >= kLarge;
      if (is_layer(node)) small = is_large ? 0 : small + 1;
      layers += is_layer(node) && is_large;
      if (small > kBetween || (layers == 0 && !is_large)) break;
      if (is_large || (is_elementwise(node) && small == 0)) end = id + 1;
    }
    return layers >= 2 ? end : begin;
  }

  void rewrite(NodeId begin, NodeId end) {
    size_t most = 0;
    for (NodeId id = begin; id < end; ++id) {
      if (operands_[id] == 0) rewriter_.copy(graph_.node(id));
      else most = std::max(most, largest(id));
    }
    int64_t groups = 1;
    while (images_ % groups != 0 || (groups < images_ && most / static_cast<size_t>(groups) > kGroup)) ++groups;
    std::map<ValueId, std::vector<Tensor>> parts;  // one a group
    for (int64_t group = 0; group < groups; ++group)
      for (NodeId id = begin; id < end; ++id)
        if (operands_[id] != 0) add_part(id, group, groups, parts);
    for (NodeId id = begin; id < end; ++id)
      for (const ValueId value : graph_.node(id).out)
        if (operands_[id] != 0 &&
            std::ranges::any_of(matcher_.readers(value), [&](NodeId reader) { return reader >= end; }))
          rewriter_.map(value, rewriter_.add(graph_.node(id), kConcat, parts.at(value), ConcatAttrs{0})[0]);
  }

  void add_part(NodeId id, int64_t group, int64_t groups, std::map<ValueId, std::vector<Tensor>>& parts) {
    const Node& node = graph_.node(id);
    std::vector<Tensor> in;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!(operands_[id] >> i & 1)) {
        in.push_back(rewriter_[node.in[i]]);
        continue;
      }
      std::vector<Tensor>& of_operand = parts[node.in[i]];
      if (of_operand.empty()) {
        const std::vector<int64_t> sizes(groups, shape(node.in[i])[0] / groups);
        of_operand = rewriter_.add(node, kSplit, std::array{rewriter_[node.in[i]]}, SplitAttrs{0, sizes});
      }
      in.push_back(of_operand[group]);
    }
    const std::vector<Tensor> out = rewriter_.add(node, *node.op, in, attrs_of_part(node, groups));
    for (size_t i = 0; i < out.size(); ++i) parts[node.out[i]].push_back(out[i]);
  }

  static Attrs attrs_of_part(const Node& node, int64_t groups) {
    const auto cut = [&](auto attrs) {
      attrs.shape.set(0, attrs.shape[0] / groups);
      return Attrs(attrs);
    };
    if (is(node, kReshape)) return cut(node.attrs.as<ReshapeAttrs>());
    if (is(node, kBroadcast)) return cut(node.attrs.as<BroadcastAttrs>());
    if (is(node, kReduce)) return cut(node.attrs.as<ReduceAttrs>());
    return node.attrs;
  }

  const Graph& graph_;
  const Matcher matcher_;
  Rewriter rewriter_;
  std::vector<unsigned> operands_;  // by node: those that are cut; 0: the node is not
  int64_t images_ = 1;
};
}  // namespace

Graph group_images(const Graph& graph) { return Groups(graph).run(); }
}  // namespace linnet

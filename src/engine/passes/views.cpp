// Lets values that are parts or other shapes of another value share its memory. Movement kernels then do nothing.
//
//   reshape  the result is a view of a dense operand
//   split    each part is a view of the whole if all its readers take strides there
//   concat   each part, and what it is added to, is a view into the result if its producer can write with strides
#include <algorithm>
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
bool is_reshape(const Node& node) { return algebra_of(node) == Algebra::kReshape; }
bool is_split(const Node& node) { return algebra_of(node) == Algebra::kSplit; }
bool is_concat(const Node& node) { return algebra_of(node) == Algebra::kConcat; }

class Views {
 public:
  explicit Views(Graph graph) : graph_(std::move(graph)), readers_(graph_) {}

  Graph run() {
    // Concats from the last, so that a concat of concats nests; then the others in order.
    for (NodeId id = graph_.node_count() - 1; id >= 0; --id)
      if (is_concat(graph_.node(id))) view_concat(graph_.node(id));
    for (const Node& node : graph_.nodes()) {
      if (is_reshape(node)) view_reshape(node);
      if (is_split(node)) view_split(node);
    }
    return std::move(graph_);
  }

 private:
  int64_t count_readers(ValueId value) const {  // nodes, once per operand
    return std::ranges::count_if(readers_.readers(value), [&](NodeId id) { return id < graph_.node_count(); });
  }

  bool readers_take_strides(ValueId value) const {
    for (const NodeId id : readers_.readers(value)) {
      if (id == graph_.node_count()) return false;
      const Node& node = graph_.node(id);
      for (size_t i = 0; i < node.in.size(); ++i)
        if (node.in[i] == value && !(i < 32 && node.op->strided_inputs >> i & 1)) return false;
    }
    return true;
  }

  bool is_dense(ValueId id) const {
    const Value& value = graph_.value(id);
    return !value.view || value.view->strides == dense_strides(value.type.shape);
  }

  // A slice along `axis` is dense if all axes before it have size 1.
  static bool slice_is_dense(const Shape& shape, int axis) { return shape.elements(0, axis) == 1; }

  void view_reshape(const Node& node) {
    if (!is_dense(node.in[0]) || graph_.value(node.out[0]).view) return;
    graph_.set_view(node.out[0], {node.in[0], 0, dense_strides(graph_.value(node.out[0]).type.shape)});
  }

  void view_split(const Node& node) {
    const int axis = node.op->axis(node);
    const ValueId whole = node.in[0];
    if (!is_dense(whole)) return;
    const Shape& shape = graph_.value(whole).type.shape;
    const Shape strides = dense_strides(shape);
    int64_t start = 0;
    for (ValueId out : node.out) {
      const Shape& part = graph_.value(out).type.shape;
      const bool dense = slice_is_dense(shape, axis);
      if (!graph_.value(out).view && (dense || (axis == shape.rank() - 1 && readers_take_strides(out))))
        graph_.set_view(out, {whole, start * strides[axis], dense ? dense_strides(part) : strides});
      start += part[axis];
    }
  }

  void view_concat(const Node& node) {
    const int axis = node.op->axis(node);
    const ValueId whole = node.out[0];
    const Shape& shape = graph_.value(whole).type.shape;
    const Shape strides = dense_strides(shape);
    if (!is_dense(whole)) return;
    const bool dense = slice_is_dense(shape, axis);
    int64_t start = 0;
    for (ValueId in : node.in) {
      const Shape& part = graph_.value(in).type.shape;
      if (!(dense && reshape_into(in, whole, start * strides[axis])) &&
          can_write_into(in, dense || axis == shape.rank() - 1, dense))
        graph_.set_view(in, {whole, start * strides[axis], dense ? dense_strides(part) : strides});
      if (dense) place_accumulators(in);
      start += part[axis];
    }
  }

  // Nodes add up a shared weight's gradient in place: if the last sum lies in a larger tensor, all do.
  void place_accumulators(ValueId sum) {
    while (graph_.value(sum).view && graph_.value(sum).producer != kNone) {
      const Node& node = graph_.node(graph_.value(sum).producer);
      const ValueId before = node.in.empty() ? kNone : node.in.back();
      if (is_reshape(node)) {
        sum = node.in[0];
        continue;
      }
      const bool adds = node.op->with_accumulator && node.op->may_overwrite &&
                        node.op->may_overwrite(node, graph_.value(sum).output, static_cast<int>(node.in.size()) - 1);
      if (!adds || before == kNone || !readers_.one_reader(before) || !can_write_into(before, true, true, 0)) return;
      graph_.set_view(before, {sum, 0, dense_strides(graph_.value(sum).type.shape)});
      sum = before;
    }
  }

  // If the part is a reshape (as a weight's gradient in the flat one), its operand is computed in the result instead.
  bool reshape_into(ValueId part, ValueId whole, int64_t offset) {
    const NodeId id = graph_.value(part).producer;
    if (id == kNone || !is_reshape(graph_.node(id)) || graph_.value(part).view) return false;
    const ValueId source = graph_.node(id).in[0];
    if (count_readers(part) != 1 || count_readers(source) != 1) return false;
    if (!can_write_into(source, true, true, 0)) return false;
    graph_.set_view(part, {whole, offset, dense_strides(graph_.value(part).type.shape)});
    graph_.set_view(source, {part, 0, dense_strides(graph_.value(source).type.shape)});
    return true;
  }

  // A part can live in the result if a node computes it (inputs have their own memory), it is not a view yet, and its
  // producer and other readers take the strides it would have.
  bool can_write_into(ValueId part, bool axis_ok, bool dense, int expected_concats = 1) const {
    const Value& value = graph_.value(part);
    if (!axis_ok || value.view || value.producer == kNone) return false;
    const Node& producer = graph_.node(value.producer);
    if (renames(producer)) return false;  // they are views of their operand instead
    int concats = 0;
    for (const NodeId id : readers_.readers(part))
      if (id < graph_.node_count() && is_concat(graph_.node(id)))
        concats += static_cast<int>(std::ranges::count(graph_.node(id).in, part));
    if (concats != expected_concats) return false;
    return dense || (producer.op->strided_outputs >> value.output & 1 && readers_take_strides(part));
  }

  Graph graph_;
  const Matcher readers_;
};
}  // namespace

Graph make_views(const Graph& graph) { return Views(graph.clone()).run(); }
}  // namespace linnet

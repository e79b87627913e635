#include <set>

#include "base/error.h"
#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {

// Whether a device stores a value in bf16 is no matter of the op's inference.
TensorType widened(TensorType type) {
  if (type.dtype == DType::kBF16) type.dtype = DType::kF32;
  return type;
}

void verify_node(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::vector<TensorType> types;
  for (ValueId in : node.in) {
    if (in < 0 || in >= graph.value_count() || graph.value(in).producer >= id)
      fail_internal(graph.where_text(id) + " reads a value that is not computed before it");
    types.push_back(widened(graph.value(in).type));
  }
  const auto expected = node.op->infer({node.attrs, types});
  if (expected.size() != node.out.size()) fail_internal(graph.where_text(id) + " has the wrong number of outputs");
  for (size_t i = 0; i < expected.size(); ++i) {
    const Value& out = graph.value(node.out[i]);
    if (out.producer != id || out.output != static_cast<int>(i))
      fail_internal(graph.where_text(id) + " has an output with another producer");
    if (widened(out.type) != widened(expected[i]))
      fail_internal(graph.where_text(id) + " has type " + out.type.text() + ", inferred " + expected[i].text());
  }
}

void verify_view(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const View& view = *value.view;
  const Value& base = graph.value(view.base);
  int64_t last = view.offset;
  for (int axis = 0; axis < value.type.shape.rank(); ++axis) last += (value.type.shape[axis] - 1) * view.strides[axis];
  if (value.type.shape.elements() > 0 && (view.offset < 0 || last >= base.type.shape.elements()))
    fail_internal("value %" + std::to_string(id) + " is a view beyond its base");
  if (base.view && base.view->strides != dense_strides(base.type.shape))
    fail_internal("value %" + std::to_string(id) + " is a view of a strided view");
}

}  // namespace

void verify(const Graph& graph) {
  for (NodeId id = 0; id < graph.node_count(); ++id) verify_node(graph, id);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.value(id).view) verify_view(graph, id);
  std::set<ValueId> updated;
  for (const StateUpdate& update : graph.updates()) {
    if (graph.value(update.state).producer != kNone) fail_internal("a value that is not an input is updated as state");
    if (!updated.insert(update.state).second) fail_internal("a state is updated twice");
  }
}

}  // namespace linnet

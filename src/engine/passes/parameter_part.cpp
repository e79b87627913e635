#include "engine/passes/parameter_part.h"

#include <algorithm>

#include "engine/ops/movement/movement.h"
#include "engine/passes/matcher.h"

namespace linnet {
namespace {

ValueId before_reshapes(const Graph& graph, ValueId value) {
  for (;;) {
    const NodeId producer = graph.value(value).producer;
    if (producer == kNone || !is(graph.node(producer), kReshape)) return value;
    value = graph.node(producer).in[0];
  }
}

}  // namespace

std::optional<ParameterPart> parameter_part(const Graph& graph, ValueId value) {
  value = before_reshapes(graph, value);
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone || !is(graph.node(producer), kSplit)) return std::nullopt;
  const Node& split = graph.node(producer);
  const auto input = std::ranges::find(graph.inputs(), split.in[0], &GraphInput::value);
  if (input == graph.inputs().end() || graph.value(split.in[0]).type.shape.rank() != 1) return std::nullopt;
  int64_t offset = 0;
  for (const ValueId out : split.out) {
    if (out == value) return ParameterPart{input->name, offset};
    offset += graph.value(out).type.shape.elements();
  }
  return std::nullopt;
}

}  // namespace linnet

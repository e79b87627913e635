#include <cstring>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {

std::string name_of(ValueId id) { return "%" + std::to_string(id); }

std::string value_text(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  std::string text = value.type.text();
  if (value.view)
    text += " view of " + name_of(value.view->base) + " at " + std::to_string(value.view->offset) + " strides " +
            value.view->strides.text();
  return text;
}

}  // namespace

std::string dump(const Graph& graph) {
  std::string text;
  for (const GraphInput& input : graph.inputs())
    text += name_of(input.value) + " = input " + input.name + " : " + value_text(graph, input.value) + "\n";
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.out.size(); ++i) text += (i ? ", " : "") + name_of(node.out[i]);
    text += std::string(" = ") + node.op->name + "(";
    for (size_t i = 0; i < node.in.size(); ++i) text += (i ? ", " : "") + name_of(node.in[i]);
    text += ")";
    if (const std::string attrs = node.attrs.text(); !attrs.empty()) text += " {" + attrs + "}";
    text += " : ";
    for (size_t i = 0; i < node.out.size(); ++i) text += (i ? ", " : "") + value_text(graph, node.out[i]);
    text += "   # " + graph.where_text(id) + "\n";
  }
  for (const GraphOutput& output : graph.outputs())
    text += "output " + output.name + " = " + name_of(output.value) + "\n";
  for (const StateUpdate& update : graph.updates())
    text += "update " + name_of(update.state) + " := " + name_of(update.value) + "\n";
  return text;
}

}  // namespace linnet

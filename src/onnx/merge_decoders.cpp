#include <algorithm>
#include <set>

#include "base/error.h"
#include "onnx/sources.h"

namespace linnet {
namespace {

constexpr const char* kChoice = "use_cache_branch";

bool has(const std::vector<OnnxValueInfo>& values, const std::string& name) {
  return std::ranges::any_of(values, [&](const OnnxValueInfo& value) { return value.name == name; });
}

// A branch's own names get a prefix: they may not be those of the model around it or of the other branch.
void add_prefix(OnnxGraph& graph, const std::string& prefix) {
  std::set<std::string> shared;
  for (const OnnxValueInfo& input : graph.inputs) shared.insert(input.name);
  for (OnnxTensor& tensor : graph.initializers)
    if (tensor.fill) shared.insert(tensor.name);  // a parameter
  const auto rename = [&](std::string& name) {
    if (!name.empty() && !shared.contains(name)) name.insert(0, prefix);
  };
  for (OnnxTensor& tensor : graph.initializers) rename(tensor.name);
  for (OnnxNode& node : graph.nodes) {
    rename(node.name);
    for (auto* names : {&node.in, &node.out})
      for (std::string& name : *names) rename(name);
  }
  for (OnnxValueInfo& output : graph.outputs) rename(output.name);
}

void add_missing(std::vector<OnnxValueInfo>& to, const std::vector<OnnxValueInfo>& from) {
  for (const OnnxValueInfo& value : from)
    if (!has(to, value.name)) to.push_back(value);
}

// Gives the branch the outputs of the whole, in their order.
void complete_outputs(OnnxGraph& branch, const std::vector<OnnxValueInfo>& outputs) {
  std::vector<OnnxValueInfo> ordered;
  for (const OnnxValueInfo& output : outputs) {
    if (!has(branch.outputs, output.name)) {
      const std::string past = "past_key_values" + output.name.substr(output.name.find('.'));
      if (!has(branch.inputs, past)) fail_internal("ONNX: no branch computes " + output.name);
      branch.nodes.push_back({.name = output.name, .op = "Identity", .in = {past}, .out = {output.name}});
    }
    ordered.push_back(output);
  }
  branch.outputs = std::move(ordered);
}

void move_initializers(OnnxGraph& from, OnnxGraph& to) {
  for (OnnxTensor& tensor : from.initializers) {
    const auto same = [&](const OnnxTensor& other) { return other.name == tensor.name; };
    if (std::ranges::none_of(to.initializers, same)) to.initializers.push_back(std::move(tensor));
  }
  from.initializers.clear();
}

OnnxAttribute branch_attribute(const char* name, OnnxGraph graph) {
  graph.name = name;
  graph.inputs.clear();
  return {.name = name, .type = OnnxAttribute::kGraph, .graph = std::make_shared<OnnxGraph>(std::move(graph))};
}

}  // namespace

OnnxModel merge_decoders(OnnxModel without_past, OnnxModel with_past, bool any_head_size) {
  OnnxGraph merged{
      .name = without_past.graph.name, .inputs = without_past.graph.inputs, .outputs = without_past.graph.outputs};
  add_missing(merged.inputs, with_past.graph.inputs);
  add_missing(merged.outputs, with_past.graph.outputs);
  if (any_head_size)
    for (OnnxValueInfo& input : merged.inputs)
      if (input.name.starts_with("past_key_values")) input.dims.back() = {-1, "head_size"};
  merged.inputs.push_back({.name = kChoice, .element = OnnxElement::kBool, .has_shape = true, .dims = {{1}}});
  complete_outputs(without_past.graph, merged.outputs);
  complete_outputs(with_past.graph, merged.outputs);
  add_prefix(without_past.graph, "without_past/");
  add_prefix(with_past.graph, "with_past/");
  move_initializers(without_past.graph, merged);
  move_initializers(with_past.graph, merged);

  OnnxNode choice{.name = "choice", .op = "If", .in = {kChoice}};
  for (OnnxValueInfo& output : merged.outputs) {
    choice.out.push_back(output.name);
    for (OnnxDim& dim : output.dims)
      if (dim.size < 0) dim.symbol.clear();  // the branches say it in their own terms
  }
  choice.attributes = {branch_attribute("then_branch", std::move(with_past.graph)),
                       branch_attribute("else_branch", std::move(without_past.graph))};
  merged.nodes = {choice};
  OnnxModel model = std::move(without_past);
  model.graph = std::move(merged);
  return model;
}

}  // namespace linnet

#include "base/functions.h"
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include "onnx/file/model.h"

namespace linnet {
namespace {
constexpr int kMostFunctions = 32;                                          // within one another
constexpr int64_t kNodeWeight = 64, kMostWeight = kNodeWeight * 1'000'000;  // nodes, and numbers in their attributes

struct FunctionExpansion {
  const std::vector<OnnxFunction>& functions;
  const std::function<void(const std::string& problem)>& fail;
  int64_t weight = 0;

  void expand(OnnxGraph& graph, int depth) {
    std::vector<OnnxNode> expanded;
    for (OnnxNode& node : graph.nodes) {
      weight += kNodeWeight;
      for (const OnnxAttribute& attribute : node.attributes) {
        weight +=
            std::ssize(attribute.ints) + std::ssize(attribute.floats) + kNodeWeight * std::ssize(attribute.strings);
        if (attribute.graph) expand(*attribute.graph, depth);
      }
      const auto function = std::ranges::find_if(
          functions, [&](const OnnxFunction& each) { return each.name == node.op && each.domain == node.domain; });
      if (weight > kMostWeight) fail("its functions stand for more than a million nodes");
      if (function == functions.end()) {
        expanded.push_back(std::move(node));
        continue;
      }
      if (depth == kMostFunctions) fail("functions call one another without an end");
      OnnxGraph body = body_of(*function, node);
      expand(body, depth + 1);
      std::ranges::move(body.nodes, std::back_inserter(expanded));
    }
    graph.nodes = std::move(expanded);
  }

  // The function's nodes with the operands, results and attributes of `node`, and other values under names of their
  // own.
  OnnxGraph body_of(const OnnxFunction& function, const OnnxNode& node) const {
    const auto given = [](const std::vector<std::string>& names, size_t i) { return i < names.size() ? names[i] : ""; };
    std::map<std::string, std::string> names;
    std::vector<OnnxNode> handed_on;
    for (size_t i = 0; i < function.in.size(); ++i) names[function.in[i]] = given(node.in, i);
    for (size_t i = 0; i < function.out.size(); ++i) {
      const std::string result = given(node.out, i);
      if (result.empty()) continue;
      const auto [found, is_new] = names.emplace(function.out[i], result);
      if (!is_new) handed_on.push_back({{}, "Identity", {}, {found->second}, {result}});  // an operand, or named twice
    }
    const std::string prefix = function.name + "#" + std::to_string(weight) + "/";
    const auto rename = [&](std::string& name) {
      if (!name.empty()) name = find_or(names, name, prefix + name);
    };
    const std::function<OnnxGraph(OnnxGraph)> renamed = [&](OnnxGraph graph) {
      for (OnnxNode& each : graph.nodes) {
        std::ranges::for_each(each.in, rename), std::ranges::for_each(each.out, rename);
        for (OnnxAttribute& attribute : std::exchange(each.attributes, {})) {
          const OnnxAttribute* value = attribute.reference.empty() ? &attribute : node.find(attribute.reference);
          if (!value) value = find_item(function.defaults, attribute.reference, &OnnxAttribute::name);
          if (!value) continue;
          OnnxAttribute& own = each.attributes.emplace_back(*value);
          own.name = attribute.name;
          if (value == &attribute && own.graph) own.graph = std::make_shared<OnnxGraph>(renamed(*own.graph));
        }
      }
      for (auto* values : {&graph.inputs, &graph.outputs})
        for (OnnxValueInfo& value : *values) rename(value.name);
      for (OnnxTensor& tensor : graph.initializers) rename(tensor.name);
      return graph;
    };
    OnnxGraph body = renamed({.nodes = function.nodes});
    std::ranges::move(handed_on, std::back_inserter(body.nodes));
    return body;
  }
};
}  // namespace

void expand_functions(OnnxGraph& graph, const std::vector<OnnxFunction>& functions,
    const std::function<void(const std::string& problem)>& fail) {
  if (!functions.empty()) FunctionExpansion{functions, fail}.expand(graph, 0);
}
}  // namespace linnet

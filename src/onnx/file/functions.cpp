#include "base/functions.h"
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include "onnx/file/model.h"

namespace linnet {
namespace {
constexpr int kMostFunctions = 32;  // within one another
constexpr int64_t kMostNodes = 1'000'000;

// Copies of a function's nodes, of which `node` is a use.
class Use {
 public:
  Use(const OnnxFunction& function, const OnnxNode& node, int64_t number)
      : function_(function), node_(node), prefix_(function.name + "#" + std::to_string(number) + "/") {
    const auto given = [](const std::vector<std::string>& names, size_t i) { return i < names.size() ? names[i] : ""; };
    for (size_t i = 0; i < function.in.size(); ++i) names_[function.in[i]] = given(node.in, i);
    for (size_t i = 0; i < function.out.size(); ++i) {
      const std::string result = given(node.out, i);
      if (result.empty()) continue;
      const auto [found, is_new] = names_.emplace(function.out[i], result);
      if (!is_new) handed_on_.push_back({{}, "Identity", {}, {found->second}, {result}});  // an operand, or twice
    }
  }

  OnnxGraph graph() const {
    OnnxGraph graph = renamed({.nodes = function_.nodes});
    graph.nodes.insert(graph.nodes.end(), handed_on_.begin(), handed_on_.end());
    return graph;
  }

 private:
  OnnxGraph renamed(OnnxGraph graph) const {
    for (OnnxNode& node : graph.nodes) {
      for (auto* names : {&node.in, &node.out})
        for (std::string& name : *names) rename(name);
      std::vector<OnnxAttribute> attributes;
      for (const OnnxAttribute& attribute : node.attributes) {
        const OnnxAttribute* value = attribute.reference.empty() ? &attribute : node_.find(attribute.reference);
        if (!value) value = find_item(function_.defaults, attribute.reference, &OnnxAttribute::name);
        if (!value) continue;
        attributes.push_back(*value);
        attributes.back().name = attribute.name;
        if (value == &attribute && value->graph)
          attributes.back().graph = std::make_shared<OnnxGraph>(renamed(*value->graph));
      }
      node.attributes = std::move(attributes);
    }
    for (auto* values : {&graph.inputs, &graph.outputs})
      for (OnnxValueInfo& value : *values) rename(value.name);
    for (OnnxTensor& tensor : graph.initializers) rename(tensor.name);
    return graph;
  }

  void rename(std::string& name) const {
    if (!name.empty()) name = find_or(names_, name, prefix_ + name);
  }

  const OnnxFunction& function_;
  const OnnxNode& node_;
  const std::string prefix_;
  std::map<std::string, std::string> names_;  // of operands and results: those of the use; "": omitted
  std::vector<OnnxNode> handed_on_;
};

struct Expansion {
  const std::vector<OnnxFunction>& functions;
  const std::function<void(const std::string& problem)>& fail;
  int64_t nodes = 0;

  void expand(OnnxGraph& graph, int depth) {
    std::vector<OnnxNode> expanded;
    for (OnnxNode& node : graph.nodes) {
      for (const OnnxAttribute& attribute : node.attributes)
        if (attribute.graph) expand(*attribute.graph, depth);
      const auto function = std::ranges::find_if(
          functions, [&](const OnnxFunction& each) { return each.name == node.op && each.domain == node.domain; });
      if (++nodes > kMostNodes) fail("its functions stand for more than a million nodes");
      if (function == functions.end()) {
        expanded.push_back(std::move(node));
        continue;
      }
      if (depth == kMostFunctions) fail("functions call one another without an end");
      OnnxGraph body = Use(*function, node, nodes).graph();
      expand(body, depth + 1);
      std::ranges::move(body.nodes, std::back_inserter(expanded));
    }
    graph.nodes = std::move(expanded);
  }
};
}  // namespace

void expand_functions(OnnxGraph& graph, const std::vector<OnnxFunction>& functions,
    const std::function<void(const std::string& problem)>& fail) {
  if (!functions.empty()) Expansion{functions, fail}.expand(graph, 0);
}
}  // namespace linnet

// What the passes made, in words: nodes are counted by what they do before and after each pass.
#include <algorithm>
#include <map>
#include <sstream>

#include "ir/op.h"
#include "ops/pointwise/pointwise.h"
#include "passes/passes.h"

namespace linnet {
namespace {

// "matmul+bias+relu", "mul+add+tanh": sizes, positions and numbers are left out.
std::string words(const Node& node) {
  std::string text;
  const auto append = [&](const std::string& word) { text += (text.empty() ? "" : "+") + word; };
  if (node.op == &kPointwise) {
    for (const Instruction& instruction : node.attrs.as<PointwiseAttrs>().expression.code)
      if (instruction.function != Scalar::kInput && instruction.function != Scalar::kConstant)
        append(scalar_name(instruction.function));
    return text;
  }
  append(node.op->name);
  std::istringstream attributes(node.attrs.text());
  for (std::string word; attributes >> word;)
    if (std::all_of(word.begin(), word.end(), [](char c) { return c == '_' || std::isalnum(c); }) &&
        !word.starts_with("trans_"))
      append(word);
  return text;
}

std::map<std::string, int> count_nodes(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[words(node)];
  return counts;
}

int count_views(const Graph& graph) {
  int count = 0;
  for (ValueId id = 0; id < graph.value_count(); ++id) count += graph.value(id).view.has_value();
  return count;
}

}  // namespace

std::vector<std::string> new_nodes(const Graph& before, const Graph& after) {
  std::vector<std::string> changes;
  const auto old = count_nodes(before);
  for (const auto& [name, count] : count_nodes(after)) {
    const auto found = old.find(name);
    const int more = count - (found == old.end() ? 0 : found->second);
    if (more > 0) changes.push_back(name + " x " + std::to_string(more));
  }
  if (const int views = count_views(after); views > count_views(before))
    changes.push_back(std::to_string(views) + " of " + std::to_string(after.value_count()) + " values are views");
  return changes;
}

std::string fusion_report(const std::vector<PassReport>& reports) {
  std::string text;
  for (const PassReport& report : reports) {
    if (report.fused.empty()) continue;
    text += report.name + ": ";
    for (size_t i = 0; i < report.fused.size(); ++i) text += (i ? ", " : "") + report.fused[i];
    text += "\n";
  }
  return text;
}

}  // namespace linnet

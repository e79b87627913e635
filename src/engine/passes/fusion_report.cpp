// What the passes made, in words: nodes are counted by what they do before and after each pass.
#include <map>
#include "engine/ir/op.h"
#include "engine/passes/passes.h"

namespace linnet {
namespace {

std::map<std::string, int> count_nodes(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[label_of(node)];
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

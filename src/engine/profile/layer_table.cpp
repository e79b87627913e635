#include <algorithm>
#include <map>
#include "base/text.h"
#include "engine/profile/profile.h"

namespace linnet {
namespace {
struct Times {
  double forward = 0, backward = 0, update = 0, flops = 0, kept = 0;
  double total() const { return forward + backward + update; }
  void add(const ProfileRow& row) {
    if (row.phase == "evaluation") return;
    flops += row.flops, kept += row.kept_bytes;
    if (row.phase == "both") {
      forward += kForwardShare * row.seconds, backward += (1 - kForwardShare) * row.seconds;
      return;
    }
    (row.phase == "forward" ? forward : row.phase == "backward" ? backward : update) += row.seconds;
  }
};

struct ModuleNode {
  Times times;
  std::map<std::string, ModuleNode> children;
  int64_t merged = 1;  // modules that this line stands for
};

ModuleNode module_tree(const ProfileSummary& summary, bool each) {
  ModuleNode root;
  std::map<std::string, std::map<std::string, bool>> numbers;  // of each merged line, which were met
  for (const ProfileRow& row : summary.rows) {
    root.times.add(row);
    ModuleNode* node = &root;
    std::string path;
    const std::string module = row.module.empty() ? "(outside modules)" : row.module;
    for (const std::string_view part : split(module, '.')) {
      std::string name(part);
      path += "." + name;
      if (!each && is_digits(name)) {
        const std::string number = std::exchange(name, "*");
        path.replace(path.size() - number.size(), number.size(), "*");
        numbers[path][number] = true;
      }
      node = &node->children[name];
      node->merged = numbers.contains(path) ? static_cast<int64_t>(numbers[path].size()) : 1;
      node->times.add(row);
    }
  }
  return root;
}

std::string milliseconds(double seconds) { return seconds > 0 ? printed("%.2f", seconds * 1e3) : "-"; }

std::string line_text(const ProfileSummary& summary, const Times& t, const std::string& name) {
  const std::string ratio = t.forward > 0 && t.backward > 0 ? printed("%.1f", t.backward / t.forward) : "-";
  const bool has_peak = t.flops > 0 && summary.machine.flops > 0 && t.total() > 0;
  const std::string peak = has_peak ? printed("%.0f%%", 100 * t.flops / t.total() / summary.machine.flops) : "-";
  const std::string kept = t.kept > 0 ? printed("%.2f", t.kept / 1e6) : "-";
  return printed("%5.1f%% %9s %9s %9s %6s %6s %9s  ", 100 * t.total() / summary.step_seconds,
             milliseconds(t.total()).c_str(), milliseconds(t.forward).c_str(), milliseconds(t.backward).c_str(),
             ratio.c_str(), peak.c_str(), kept.c_str()) +
         name + "\n";
}

void append_lines(const ProfileSummary& summary, const ModuleNode& node, const std::string& name, int level, int depth,
    std::string& text) {
  const std::string count = node.merged > 1 ? " (" + std::to_string(node.merged) + " together)" : "";
  text += line_text(summary, node.times, std::string(2 * level, ' ') + name + count);
  if (level == depth) return;
  auto sorted = mapped(node.children, [](const auto& child) { return &child; });
  std::ranges::stable_sort(
      sorted, std::ranges::greater{}, [](const auto* child) { return child->second.times.total(); });
  for (const auto* child : sorted) append_lines(summary, child->second, child->first, level + 1, depth, text);
}

// The least time that the machine's arithmetic and memory allow.
double bound(const ProfileRow& row, const MachinePeak& machine) {
  const double arithmetic = machine.flops > 0 ? row.flops / machine.flops : 0;
  return std::max(arithmetic, machine.bandwidth > 0 ? row.bytes / machine.bandwidth : 0);
}
}  // namespace

std::string layer_table(const ProfileSummary& summary, int depth, bool each) {
  std::string text = " share   ms/step   forward  backward    b/f   peak   kept MB  module\n";
  append_lines(summary, module_tree(summary, each), "the whole step", 0, depth, text);
  return text;
}

std::string worst_ratios(const ProfileSummary& summary, size_t count) {
  std::map<std::string, Times> modules;
  for (const ProfileRow& row : summary.rows) modules[row.module].add(row);
  std::vector<std::pair<double, std::string>> slow;
  for (const auto& [module, t] : modules) {
    const double beyond = t.backward - 2 * t.forward;
    if (module.empty() || t.forward <= 0 || beyond < 0.002 * summary.step_seconds) continue;
    slow.emplace_back(beyond, "  " + module +
                                  printed(": forward %.2f ms, backward %.2f ms, %.1f times as long\n", t.forward * 1e3,
                                      t.backward * 1e3, t.backward / t.forward));
  }
  std::vector<std::pair<double, std::string>> lost;
  for (const ProfileRow& row : summary.rows) {
    const double least = bound(row, summary.machine), loses = row.seconds - least;
    if (least <= 0 || row.phase == "evaluation" || loses < 0.002 * summary.step_seconds) continue;
    lost.emplace_back(loses,
        "  " + std::string(row.phase) + " " + row.label + " in " + (row.module.empty() ? "no module" : row.module) +
            " (" + row.source +
            printed("): %.2f ms, %.0f%% of what the machine allows\n", row.seconds * 1e3, 100 * least / row.seconds));
  }
  const auto listed = [count](auto& found, const char* title) {
    if (found.empty()) return std::string();
    std::ranges::stable_sort(found, std::ranges::greater{}, [](const auto& entry) { return entry.first; });
    std::string text = title;
    for (size_t i = 0; i < std::min(count, found.size()); ++i) text += found[i].second;
    return text;
  };
  return listed(slow, "backward passes longer than twice the forward pass, counting a module's own ops:\n") +
         listed(lost, "ops that lose most time to what arithmetic and memory allow:\n");
}
}  // namespace linnet

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <tuple>

#include "base/json.h"
#include "engine/profile/profile.h"
#include "engine/profile/rank_profiles.h"

namespace linnet {
namespace {

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

bool is_within_a_step(const Profile& profile, const Span& span) {
  return std::ranges::any_of(
      profile.steps, [&](const ProfiledStep& step) { return step.begin <= span.begin && span.begin < step.end; });
}

using RowKey = std::tuple<std::string, std::string, std::string, std::string>;

void add_node(const PlanProfile& plan, const Span& span, double share, std::map<RowKey, ProfileRow>& rows) {
  const NodeProfile& node = plan.nodes[static_cast<size_t>(span.index)];
  const char* phase = phase_name(node.phase);
  ProfileRow& row = rows[{phase, node.label, node.module, node.source}];
  row.phase = phase, row.label = node.label, row.module = node.module, row.source = node.source;
  ++row.calls;
  row.seconds += share * seconds(span.end - span.begin);
  row.flops += share * node.flops, row.bytes += share * node.bytes, row.kept_bytes += share * node.kept_bytes;
}

// "23%", or "-" where nothing was computed or measured.
std::string percent(double part, double whole) {
  if (part <= 0 || whole <= 0) return "-";
  char text[16];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * part / whole);
  return text;
}

// At most `width` characters, the end of which says most.
std::string ending(const std::string& text, size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - (width - 3));
}

}  // namespace

const char* host_phase(SpanKind kind) {
  constexpr const char* kNames[] = {"data", "sharing", "stage"};
  return kNames[static_cast<size_t>(kind)];
}

ProfileSummary summarize(const Profile& profile) {
  ProfileSummary summary{.machine = profile.machine};
  summary.planned_bytes = profile.planned_bytes;
  if (profile.steps.empty()) return summary;
  summary.steps = static_cast<int64_t>(profile.steps.size());
  summary.first_step = profile.steps.front().step, summary.last_step = profile.steps.back().step;
  const double share = 1 / static_cast<double>(summary.steps);
  for (const ProfiledStep& step : profile.steps) {
    summary.step_seconds += share * seconds(step.end - step.begin);
    summary.process_bytes = std::max(summary.process_bytes, step.process_bytes);
  }
  std::map<RowKey, ProfileRow> rows;
  for (const Span& span : profile.tracks.front().spans) {
    const auto plan = profile.plans.find(span.plan);
    const bool within = is_within_a_step(profile, span);
    if (plan == profile.plans.end()) {
      if (!within || span.kind == SpanKind::kStagePass) continue;  // which the nodes in it make up
      double& part = span.kind == SpanKind::kSharing ? summary.sharing_seconds : summary.data_seconds;
      part += share * seconds(span.end - span.begin);
      continue;
    }
    add_node(plan->second, span, share, rows);
    if (within) summary.node_seconds += share * seconds(span.end - span.begin);
    summary.arena_bytes = std::max(summary.arena_bytes, plan->second.arena_bytes);
    summary.peak_live_bytes = std::max(summary.peak_live_bytes, plan->second.live[static_cast<size_t>(span.index)]);
  }
  for (auto& [key, row] : rows) summary.rows.push_back(std::move(row));
  std::ranges::stable_sort(summary.rows, std::ranges::greater{}, &ProfileRow::seconds);
  return summary;
}

std::string summary_json(const ProfileSummary& summary) { return summary_json(summary, {}); }

std::string summary_json(const ProfileSummary& summary, const PipelineBubble& bubble) {
  Json rows = Json::array();
  for (const ProfileRow& row : summary.rows) {
    const auto rate = [&](double amount, double peak) -> Json {
      if (amount <= 0 || peak <= 0 || row.seconds <= 0) return nullptr;
      return amount / row.seconds / peak;
    };
    rows.push_back({{"phase", row.phase},
                    {"op", row.label},
                    {"module", row.module},
                    {"source", row.source},
                    {"calls", row.calls},
                    {"ms", row.seconds * 1e3},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"kept_bytes", row.kept_bytes},
                    {"share_of_peak", rate(row.flops, summary.machine.flops)},
                    {"share_of_bandwidth", rate(row.bytes, summary.machine.bandwidth)}});
  }
  Json pipeline;
  if (bubble.stages > 1)
    pipeline = {{"stages", bubble.stages},
                {"micro_batches", bubble.micro_batches},
                {"bubble", bubble.measured},
                {"bubble_in_theory", bubble.in_theory()}};
  const Json json{{"format", "linnet profile"},
                  {"first_step", summary.first_step},
                  {"last_step", summary.last_step},
                  {"steps", summary.steps},
                  {"step_ms", summary.step_seconds * 1e3},
                  {"nodes_ms", summary.node_seconds * 1e3},
                  {"data_ms", summary.data_seconds * 1e3},
                  {"sharing_ms", summary.sharing_seconds * 1e3},
                  {"pipeline", std::move(pipeline)},
                  {"machine", summary.machine.name},
                  {"peak_gflops", summary.machine.flops * 1e-9},
                  {"bandwidth_gb_per_second", summary.machine.bandwidth * 1e-9},
                  {"arena_bytes", summary.arena_bytes},
                  {"peak_live_bytes", summary.peak_live_bytes},
                  {"planned_bytes", summary.planned_bytes},
                  {"process_bytes", summary.process_bytes},
                  {"rows", std::move(rows)}};
  return json.dump(1) + "\n";
}

std::string summary_table(const ProfileSummary& summary, size_t count) {
  char line[256];
  const double step = summary.step_seconds;
  std::snprintf(line, sizeof line, "steps %lld to %lld: %.2f ms each, %s in %zu ops, %s waiting for data\n",
                static_cast<long long>(summary.first_step), static_cast<long long>(summary.last_step), step * 1e3,
                percent(summary.node_seconds, step).c_str(), summary.rows.size(),
                percent(summary.data_seconds, step).c_str());
  std::string text = line;
  if (summary.sharing_seconds > 0)
    text.insert(text.size() - 1, ", " + percent(summary.sharing_seconds, step) + " sharing");
  std::map<std::string, double> phases;
  for (const ProfileRow& row : summary.rows) phases[row.phase] += row.seconds;
  for (const char* phase : {"forward", "both", "backward", "update", "evaluation"})
    if (phases.contains(phase)) {
      std::snprintf(line, sizeof line, "%s%s %.2f ms", text.ends_with('\n') ? "" : ", ", phase, phases[phase] * 1e3);
      text += line;
    }
  text += "\n";
  if (count == 0) return text;
  text += "  ms/step  share   peak  memory  phase     op                            module (source)\n";
  for (size_t i = 0; i < std::min(count, summary.rows.size()); ++i) {
    const ProfileRow& row = summary.rows[i];
    std::snprintf(line, sizeof line, "%9.3f %5.1f%%  %5s   %5s  %-8s  %-28.28s  %s (%s)\n", row.seconds * 1e3,
                  100 * row.seconds / step, percent(row.flops, row.seconds * summary.machine.flops).c_str(),
                  percent(row.bytes, row.seconds * summary.machine.bandwidth).c_str(), row.phase.c_str(),
                  row.label.c_str(), ending(row.module, 48).c_str(), row.source.c_str());
    text += line;
  }
  return text;
}

}  // namespace linnet

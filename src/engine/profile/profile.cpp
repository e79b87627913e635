#include "engine/profile/profile.h"
#include <algorithm>
#include <tuple>
#include "base/json.h"
#include "base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/plan/store.h"
#include "engine/profile/step_profiler.h"

namespace linnet {
namespace {
// The graph's outputs or new states that are the loss of a training step and its count.
std::vector<ValueId> loss_values(const Graph& graph) {
  const auto is_loss = [](std::string_view name) { return name == state::kLossSum || name == state::kTokenCount; };
  std::vector<ValueId> values;
  for (const GraphOutput& output : graph.outputs())
    if (is_loss(output.name)) values.push_back(output.value);
  for (const GraphInput& input : graph.inputs())
    for (const StateUpdate& update : graph.updates())
      if (update.state == input.value && is_loss(input.name)) values.push_back(update.value);
  return values;
}

NodeId first_node(const Graph& graph, std::string_view op) {
  const auto found = std::ranges::find_if(graph.nodes(), [&](const Node& node) { return op == node.op->name; });
  return static_cast<NodeId>(found - graph.nodes().begin());
}

// Whether gradients are added to a state, or leave the graph while it runs (training/trainer/step_graphs.h).
bool accumulates(const Graph& graph) {
  return first_node(graph, "hold") < graph.node_count() ||
         std::ranges::any_of(graph.inputs(), [](const GraphInput& input) { return state::is_gradient(input.name); });
}

// Whether the views pass has made the node a no-op.
bool is_moved(const Graph& graph, const Node& node) {
  const bool may_be_view = renames(node) || algebra_of(node) == Algebra::kConcat;
  return !may_be_view || root_of(graph, node.in[0]).value != root_of(graph, node.out[0]).value;
}

double moved_bytes(const Graph& graph, const Node& node) {
  if (!is_moved(graph, node)) return 0;
  const auto bytes_of = [&](ValueId value) { return static_cast<double>(graph.value(value).type.bytes()); };
  const double bytes = sum_of<double>(node.in, bytes_of) + sum_of<double>(node.out, bytes_of);
  if (node.op != &kEmbedding) return bytes;
  const double table = bytes_of(node.in[0]);
  return bytes - table + std::min(table, bytes_of(node.out[0]));
}

// In a training graph, forward is what the loss depends on, update begins with the norm of the gradients or the
// optimizer, and backward is the rest. Other graphs are evaluation.
std::vector<StepPhase> node_phases(const Graph& graph) {
  const NodeId update = std::min(first_node(graph, "sum_of_squares"), first_node(graph, "optimizer_step"));
  const bool updates = update < graph.node_count(), accumulated = accumulates(graph);
  std::vector<StepPhase> phases(graph.node_count(), StepPhase::kEvaluation);
  if (!updates && !accumulated) return phases;
  if (updates && accumulated) return std::vector(phases.size(), StepPhase::kUpdate);
  const std::vector<bool> forward = ancestors_of(graph, loss_values(graph));
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    phases[id] = forward[id] ? StepPhase::kForward : id < update ? StepPhase::kBackward : StepPhase::kUpdate;
    const Node& node = graph.node(id);  // the pass fuse_loss may have joined the loss with its gradient
    if (node.op == &kLinearCrossEntropyGrad && node.attrs.as<LinearCrossEntropyAttrs>().loss)
      phases[id] = StepPhase::kBoth;
  }
  return phases;
}

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

bool is_within_a_step(const Profile& profile, const Span& span) {
  return std::ranges::any_of(
      profile.steps, [&](const ProfiledStep& step) { return step.begin <= span.begin && span.begin < step.end; });
}

using RowKey = std::tuple<std::string, std::string, std::string, std::string>;

void add_node(const PlanProfile& plan, const Span& span, double share, std::map<RowKey, ProfileRow>& rows) {
  const NodeProfile& node = plan.nodes[span.index];
  const char* phase = enum_name(node.phase);
  ProfileRow& row = rows[{phase, node.label, node.module, node.source}];
  row.phase = phase, row.label = node.label, row.module = node.module, row.source = node.source;
  ++row.calls;
  row.seconds += share * seconds(span.end - span.begin);
  row.flops += share * node.flops, row.bytes += share * node.bytes, row.kept_bytes += share * node.kept_bytes;
}

std::string percent(double part, double whole) {  // "23%"; "-" if unknown
  return part > 0 && whole > 0 ? printed("%.0f%%", 100 * part / whole) : "-";
}

// The last `width` characters, which say most.
std::string ending(const std::string& text, size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - (width - 3));
}
}  // namespace

PlanProfile describe_plan(std::string name, const Plan& plan, RegionId arena) {
  const Graph& graph = plan.graph;
  PlanProfile profile{.name = std::move(name), .tenants = arena_tenants(plan, arena), .arena_bytes = plan.arena_bytes};
  profile.live = live_bytes(profile.tenants, graph.node_count());
  // The forward pass of a pipeline stage has no loss.
  const std::vector<StepPhase> phases = profile.name.starts_with("train.forward")
                                            ? std::vector(graph.node_count(), StepPhase::kForward)
                                            : node_phases(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    profile.nodes.push_back({.label = label_of(node),
        .module = graph.scope_path(node.scope),
        .source = node.where.text(),
        .phase = phases[id],
        .bytes = moved_bytes(graph, node),
        .flops = node_flops(graph, node),
        .kept_bytes = 0});
  }
  for (const ArenaTenant& tenant : profile.tenants)
    if (phases[tenant.first] == StepPhase::kForward && phases[tenant.last] == StepPhase::kBackward)
      profile.nodes[tenant.first].kept_bytes += static_cast<double>(tenant.bytes);
  return profile;
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
    summary.peak_live_bytes = std::max(summary.peak_live_bytes, plan->second.live[span.index]);
  }
  for (auto& [key, row] : rows) summary.rows.push_back(std::move(row));
  std::ranges::stable_sort(summary.rows, std::ranges::greater{}, &ProfileRow::seconds);
  return summary;
}

std::string summary_json(const ProfileSummary& summary, const PipelineBubble& bubble) {
  Json rows = Json::array();
  for (const ProfileRow& row : summary.rows) {
    const auto rate = [&](double amount, double peak) -> Json {
      if (amount <= 0 || peak <= 0 || row.seconds <= 0) return nullptr;
      return amount / row.seconds / peak;
    };
    rows.push_back({{"phase", row.phase}, {"op", row.label}, {"module", row.module}, {"source", row.source},
        {"calls", row.calls}, {"ms", row.seconds * 1e3}, {"flops", row.flops}, {"bytes", row.bytes},
        {"kept_bytes", row.kept_bytes}, {"share_of_peak", rate(row.flops, summary.machine.flops)},
        {"share_of_bandwidth", rate(row.bytes, summary.machine.bandwidth)}});
  }
  Json pipeline;
  if (bubble.stages > 1)
    pipeline = {{"stages", bubble.stages}, {"micro_batches", bubble.micro_batches}, {"bubble", bubble.measured},
        {"bubble_in_theory", bubble.in_theory()}};
  const Json json{{"format", "linnet profile"}, {"first_step", summary.first_step}, {"last_step", summary.last_step},
      {"steps", summary.steps}, {"step_ms", summary.step_seconds * 1e3}, {"nodes_ms", summary.node_seconds * 1e3},
      {"data_ms", summary.data_seconds * 1e3}, {"sharing_ms", summary.sharing_seconds * 1e3},
      {"pipeline", std::move(pipeline)}, {"machine", summary.machine.name},
      {"peak_gflops", summary.machine.flops * 1e-9}, {"bandwidth_gb_per_second", summary.machine.bandwidth * 1e-9},
      {"arena_bytes", summary.arena_bytes}, {"peak_live_bytes", summary.peak_live_bytes},
      {"planned_bytes", summary.planned_bytes}, {"process_bytes", summary.process_bytes}, {"rows", std::move(rows)}};
  return json.dump(1) + "\n";
}

std::string summary_table(const ProfileSummary& summary, size_t count) {
  const double step = summary.step_seconds;
  std::string text = "steps " + std::to_string(summary.first_step) + " to " + std::to_string(summary.last_step) +
                     printed(": %.2f ms each, %s in %zu ops, %s waiting for data", step * 1e3,
                         percent(summary.node_seconds, step).c_str(), summary.rows.size(),
                         percent(summary.data_seconds, step).c_str());
  if (summary.sharing_seconds > 0) text += ", " + percent(summary.sharing_seconds, step) + " sharing";
  text += "\n";
  std::map<std::string, double> phases;
  for (const ProfileRow& row : summary.rows) phases[row.phase] += row.seconds;
  for (const char* phase : {"forward", "both", "backward", "update", "evaluation"})
    if (phases.contains(phase))
      text += printed("%s%s %.2f ms", text.ends_with('\n') ? "" : ", ", phase, phases[phase] * 1e3);
  text += "\n";
  if (count == 0) return text;
  text += "  ms/step  share   peak  memory  phase     op                            module (source)\n";
  for (size_t i = 0; i < std::min(count, summary.rows.size()); ++i) {
    const ProfileRow& row = summary.rows[i];
    text += printed("%9.3f %5.1f%%  %5s   %5s  %-8s  %-28.28s  %s (%s)\n", row.seconds * 1e3, 100 * row.seconds / step,
        percent(row.flops, row.seconds * summary.machine.flops).c_str(),
        percent(row.bytes, row.seconds * summary.machine.bandwidth).c_str(), row.phase.c_str(), row.label.c_str(),
        ending(row.module, 48).c_str(), row.source.c_str());
  }
  return text;
}
}  // namespace linnet

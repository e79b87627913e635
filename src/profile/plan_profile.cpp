#include "profile/plan_profile.h"

#include <algorithm>
#include <string_view>

#include "ir/op.h"

namespace linnet {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

// The values that the loss of a training step and its count leave the graph with, or go into the next one's states.
std::vector<ValueId> loss_values(const Graph& graph) {
  const auto is_loss = [](std::string_view name) { return name == "loss_sum" || name == "token_count"; };
  std::vector<ValueId> values;
  for (const GraphOutput& output : graph.outputs())
    if (is_loss(output.name)) values.push_back(output.value);
  for (const GraphInput& input : graph.inputs())
    for (const StateUpdate& update : graph.updates())
      if (update.state == input.value && is_loss(input.name)) values.push_back(update.value);
  return values;
}

// Nodes that `values` depend on.
std::vector<bool> ancestors(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<bool> needed(at(graph.value_count())), found(at(graph.node_count()));
  for (const ValueId value : values) needed[at(value)] = true;
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    found[at(id)] = std::ranges::any_of(node.out, [&](ValueId out) { return needed[at(out)]; });
    if (found[at(id)])
      for (const ValueId in : node.in) needed[at(in)] = true;
  }
  return found;
}

NodeId first_node(const Graph& graph, std::string_view op) {
  const auto found = std::ranges::find_if(graph.nodes(), [&](const Node& node) { return op == node.op->name; });
  return static_cast<NodeId>(found - graph.nodes().begin());
}

bool has_gradient_state(const Graph& graph) {
  return std::ranges::any_of(graph.inputs(),
                             [](const GraphInput& input) { return input.name.starts_with("gradient"); });
}

double operand_bytes(const Graph& graph, const Node& node) {
  double bytes = 0;
  for (const auto* values : {&node.in, &node.out})
    for (const ValueId value : *values) bytes += static_cast<double>(graph.value(value).type.bytes());
  return bytes;
}

}  // namespace

const char* phase_name(StepPhase phase) {
  constexpr const char* kNames[] = {"forward", "backward", "update", "evaluation"};
  return kNames[static_cast<size_t>(phase)];
}

std::vector<StepPhase> node_phases(const Graph& graph) {
  const NodeId update = first_node(graph, "sum_of_squares");
  const bool updates = update < graph.node_count(), accumulated = has_gradient_state(graph);
  std::vector<StepPhase> phases(at(graph.node_count()), StepPhase::kEvaluation);
  if (!updates && !accumulated) return phases;
  if (updates && accumulated) return std::vector(phases.size(), StepPhase::kUpdate);
  const std::vector<bool> forward = ancestors(graph, loss_values(graph));
  for (NodeId id = 0; id < graph.node_count(); ++id)
    phases[at(id)] = forward[at(id)] ? StepPhase::kForward : id < update ? StepPhase::kBackward : StepPhase::kUpdate;
  return phases;
}

PlanProfile describe_plan(std::string name, const Plan& plan, RegionId arena) {
  const Graph& graph = plan.graph;
  PlanProfile profile{.name = std::move(name), .tenants = arena_tenants(plan, arena), .arena_bytes = plan.arena_bytes};
  profile.live = live_bytes(plan, profile.tenants);
  const std::vector<StepPhase> phases = node_phases(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    profile.nodes.push_back({.label = label_of(node),
                             .module = graph.scope_path(node.scope),
                             .source = node.where.text(),
                             .phase = phases[at(id)],
                             .bytes = operand_bytes(graph, node),
                             .flops = node_flops(graph, node),
                             .kept_bytes = 0});
  }
  for (const ArenaTenant& tenant : profile.tenants)
    if (phases[at(tenant.first)] == StepPhase::kForward && phases[at(tenant.last)] == StepPhase::kBackward)
      profile.nodes[at(tenant.first)].kept_bytes += static_cast<double>(tenant.bytes);
  return profile;
}

}  // namespace linnet

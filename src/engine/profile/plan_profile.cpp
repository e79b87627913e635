#include "engine/profile/plan_profile.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/plan/state_names.h"

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

// Whether gradients are added to a state, or leave the graph while it runs (training/trainer/step_graphs.h).
bool accumulates(const Graph& graph) {
  return first_node(graph, "hold") < graph.node_count() ||
         std::ranges::any_of(graph.inputs(), [](const GraphInput& input) { return state::is_gradient(input.name); });
}

bool in_one_memory(const Graph& graph, ValueId a, ValueId b) {
  return root_of(graph, a).value == root_of(graph, b).value;
}

// The views pass leaves nothing to do for nodes whose results lie in their operands, or the other way around.
bool is_moved(const Graph& graph, const Node& node) {
  const Algebra algebra = algebra_of(node);
  const bool may_be_view = algebra == Algebra::kReshape || algebra == Algebra::kSplit || algebra == Algebra::kConcat;
  return !may_be_view || !in_one_memory(graph, node.in[0], node.out[0]);
}

double moved_bytes(const Graph& graph, const Node& node) {
  if (!is_moved(graph, node)) return 0;
  double bytes = 0;
  const auto add = [&](ValueId value) { bytes += static_cast<double>(graph.value(value).type.bytes()); };
  std::ranges::for_each(node.in, add);
  std::ranges::for_each(node.out, add);
  if (node.op != &kEmbedding) return bytes;
  const auto table = static_cast<double>(graph.value(node.in[0]).type.bytes());
  const auto rows = static_cast<double>(graph.value(node.out[0]).type.bytes());
  return bytes - table + std::min(table, rows);
}

// A loss that the pass fuse_loss has joined with its gradient.
bool computes_loss_and_gradient(const Node& node) {
  return node.op == &kLinearCrossEntropyGrad && node.attrs.as<LinearCrossEntropyAttrs>().loss;
}

}  // namespace

const char* phase_name(StepPhase phase) {
  constexpr const char* kNames[] = {"forward", "both", "backward", "update", "evaluation"};
  return kNames[static_cast<size_t>(phase)];
}

std::vector<StepPhase> node_phases(const Graph& graph) {
  const NodeId update = std::min(first_node(graph, "sum_of_squares"), first_node(graph, "optimizer_step"));
  const bool updates = update < graph.node_count(), accumulated = accumulates(graph);
  std::vector<StepPhase> phases(at(graph.node_count()), StepPhase::kEvaluation);
  if (!updates && !accumulated) return phases;
  if (updates && accumulated) return std::vector(phases.size(), StepPhase::kUpdate);
  const std::vector<bool> forward = ancestors(graph, loss_values(graph));
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    phases[at(id)] = forward[at(id)] ? StepPhase::kForward : id < update ? StepPhase::kBackward : StepPhase::kUpdate;
    if (computes_loss_and_gradient(graph.node(id))) phases[at(id)] = StepPhase::kBoth;
  }
  return phases;
}

PlanProfile describe_plan(std::string name, const Plan& plan, RegionId arena) {
  const Graph& graph = plan.graph;
  PlanProfile profile{.name = std::move(name), .tenants = arena_tenants(plan, arena), .arena_bytes = plan.arena_bytes};
  profile.live = live_bytes(plan, profile.tenants);
  // The forward pass of a pipeline's stage has no loss.
  const std::vector<StepPhase> phases = profile.name.starts_with("train.forward")
                                            ? std::vector(at(graph.node_count()), StepPhase::kForward)
                                            : node_phases(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    profile.nodes.push_back({.label = label_of(node),
                             .module = graph.scope_path(node.scope),
                             .source = node.where.text(),
                             .phase = phases[at(id)],
                             .bytes = moved_bytes(graph, node),
                             .flops = node_flops(graph, node),
                             .kept_bytes = 0});
  }
  for (const ArenaTenant& tenant : profile.tenants)
    if (phases[at(tenant.first)] == StepPhase::kForward && phases[at(tenant.last)] == StepPhase::kBackward)
      profile.nodes[at(tenant.first)].kept_bytes += static_cast<double>(tenant.bytes);
  return profile;
}

}  // namespace linnet

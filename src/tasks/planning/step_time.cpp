#include "tasks/planning/step_time.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace linnet {
namespace {

constexpr double kProductShare = 0.8;  // of the machine's peak

// Parts and other shapes of a value that lies elsewhere cost nothing.
bool is_free(const Graph& graph, const Node& node) {
  const Algebra algebra = algebra_of(node);
  if (algebra != Algebra::kReshape && algebra != Algebra::kSplit && algebra != Algebra::kConcat) return false;
  const auto& values = algebra == Algebra::kConcat ? node.in : node.out;
  return std::ranges::all_of(values, [&](ValueId id) { return graph.value(id).view.has_value(); });
}

}  // namespace

double estimated_node_seconds(const Graph& graph, const Node& node, const MachineSpeed& speed) {
  if (is_free(graph, node)) return 0;
  size_t bytes = 0;
  for (const ValueId id : node.in) bytes += graph.value(id).type.bytes();
  for (const ValueId id : node.out) bytes += graph.value(id).type.bytes();
  return std::max(node_flops(graph, node) / (kProductShare * speed.flops),
                  static_cast<double>(bytes) / speed.bandwidth);
}

namespace {

double plan_seconds(const Plan& plan, const MachineSpeed& speed) {
  double seconds = 0;
  for (const Node& node : plan.graph.nodes()) seconds += estimated_node_seconds(plan.graph, node, speed);
  return seconds;
}

}  // namespace

double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed) {
  double longest = 0, update = 0;
  for (const auto& [name, plan] : trainer.plans()) {
    const double seconds = plan_seconds(*plan, speed);
    if (name.starts_with("train.")) longest = std::max(longest, seconds);
    if (name == "apply") update = seconds;
  }
  return static_cast<double>(trainer.options().accumulate_steps) * longest + update;
}

}  // namespace linnet

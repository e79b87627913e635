#include "tasks/planning/stage_work.h"

#include <algorithm>

#include "base/error.h"
#include "models/nn/pipeline_parallel.h"
#include "distributed/simulate/traffic.h"
#include "tasks/planning/step_time.h"
#include "tasks/planning/work_items.h"

namespace linnet {
namespace {

// The plans of a chunk for the batch shape that takes longest: of the last stage one for both passes.
struct ChunkPlans {
  const Plan *forward = nullptr, *backward = nullptr;  // backward is null where one plan computes both
};

double seconds_of(const Plan* plan, const MachineSpeed& speed) {
  double seconds = 0;
  if (!plan) return seconds;
  for (const Node& node : plan->graph.nodes()) seconds += estimated_node_seconds(plan->graph, node, speed);
  return seconds;
}

ChunkPlans plans_of(const NamedPlans& plans, int shape, int chunk, const PipelineRank& rank) {
  const auto find = [&](const std::string& name) {
    const auto found = plans.find(name);
    return found == plans.end() ? nullptr : found->second;
  };
  if (rank.stage(chunk).is_last()) return {find("train." + std::to_string(shape))};
  const std::string suffix = std::to_string(shape) + (rank.chunks > 1 ? ".chunk" + std::to_string(chunk) : "");
  return {find("train.forward." + suffix), find("train.backward." + suffix)};
}

std::vector<ChunkPlans> chosen_plans(const Trainer& trainer, const NamedPlans& plans, const MachineSpeed& speed) {
  const PipelineRank& rank = trainer.options().pipeline;
  std::vector<ChunkPlans> chosen;
  double longest = -1;
  for (int shape = 0;; ++shape) {
    std::vector<ChunkPlans> of_shape;
    double seconds = 0;
    for (int chunk = 0; chunk < rank.chunks; ++chunk) {
      of_shape.push_back(plans_of(plans, shape, chunk, rank));
      seconds += seconds_of(of_shape.back().forward, speed) + seconds_of(of_shape.back().backward, speed);
    }
    if (!of_shape.front().forward) break;
    if (seconds > longest) longest = seconds, chosen = std::move(of_shape);
  }
  if (chosen.empty()) fail_internal("a rank of a pipeline without plans of its steps");
  return chosen;
}

void add_nodes(ItemList& list, const Plan& plan, const std::string& name, RegionId arena, const MachineSpeed& speed) {
  const PlanProfile profile = describe_plan(name, plan, arena);
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const NodeProfile& node = profile.nodes[i];
    if (node.phase == StepPhase::kUpdate) continue;
    const Node& of_graph = plan.graph.node(static_cast<NodeId>(i));
    list.add({.module = node.module,
              .phase = node.phase,
              .seconds = estimated_node_seconds(plan.graph, of_graph, speed),
              .kept_bytes = node.kept_bytes,
              .exchange = exchange_of(plan.graph, of_graph)},
             block_name(node.module));
  }
}

double sent_bytes(const Plan& forward) {
  double bytes = 0;
  for (size_t i = 0;; ++i) {
    const auto found = std::ranges::find(forward.graph.outputs(), stage_output_name(i), &GraphOutput::name);
    if (found == forward.graph.outputs().end()) return bytes;
    bytes += static_cast<double>(forward.graph.value(found->value).type.bytes());
  }
}

// The chunk that a range's gradients are counted with: the first that has it.
int chunk_of(const ParameterLayout& layout, const TrainedRange& range, int chunks) {
  for (int chunk = 0; chunk < chunks; ++chunk)
    if (is_in_chunk(layout, range, chunk)) return chunk;
  return 0;
}

}  // namespace

RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout, bool detailed) {
  const NamedPlans plans = trainer.plans();
  const std::vector<ChunkPlans> chosen = chosen_plans(trainer, plans, speed);
  const ParameterLayout& parameters = trainer.layout();
  const RegionId arena = arena_of(trainer.store());
  const ShardShare& shards = trainer.options().shards;
  const auto apply = plans.find("apply");
  const double update = apply == plans.end() ? 0 : seconds_of(apply->second, speed);
  RankStages rank{.stages = {},
                  .shards = shards,
                  .accumulate_steps = trainer.options().accumulate_steps,
                  .divides_update = trainer.divides_moments()};
  for (size_t chunk = 0; chunk < chosen.size(); ++chunk) {
    const auto& [forward, backward] = chosen[chunk];
    ItemList list(detailed);
    add_nodes(list, *forward, backward ? "train.forward" : "train", arena, speed);
    if (backward) {
      list.begin_backward();
      add_nodes(list, *backward, "train.backward", arena, speed);
      list.stage.sent_bytes = sent_bytes(*forward);
    }
    StageWork& stage = list.stage;
    double own_bytes = 0;
    for (const TrainedRange& range : parameters.ranges()) {
      if (chunk_of(parameters, range, static_cast<int>(chosen.size())) != static_cast<int>(chunk)) continue;
      const auto count = static_cast<size_t>(range.count);
      stage.gradients.push_back({.traffic = reduce_scatter_traffic(count, {0, count}, shards),
                                 .add_seconds = added_bytes(count, {0, count}, shards) / speed.bandwidth,
                                 .after = stage.backward.size()});
      stage.gather += gather_slices_traffic(count, layout.data);
      own_bytes += 4.0 * static_cast<double>(count);
    }
    stage.counts = sum_everywhere_traffic(kLossTokensStops, shards);
    stage.update_seconds = update * own_bytes / std::max(4.0 * static_cast<double>(parameters.trained_count()), 1.0) +
                           seconds_of_shards(own_bytes, shards, layout.data, rank.divides_update, speed.bandwidth);
    rank.stages.push_back(std::move(stage));
  }
  return rank;
}

TrainingStep step_of_stages(const std::vector<RankStages>& ranks, const RankLayout& layout) {
  const RankStages& first = ranks.front();
  TrainingStep step{.layout = layout,
                    .micro_batches = first.shards.count() * first.accumulate_steps,
                    .stages = {},
                    .adds_early = false,
                    .divides_update = first.divides_update};
  for (int chunk = 0; chunk < layout.interleave; ++chunk)
    for (const RankStages& rank : ranks) step.stages.push_back(rank.stages[static_cast<size_t>(chunk)]);
  return step;
}

}  // namespace linnet

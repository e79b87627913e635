#include "tasks/planning/rank_work.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "base/error.h"
#include "distributed/comm/pipeline_order.h"
#include "engine/ir/op.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/residual_norm/residual_norm.h"
#include "distributed/simulate/traffic.h"
#include "tasks/planning/step_time.h"
#include "tasks/planning/work_items.h"
#include "training/trainer/gradient_buckets.h"

namespace linnet {
namespace {

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

RegionId arena_of(const Store& store) {
  for (size_t i = 0; i < store.regions().size(); ++i)
    if (store.regions()[i].name == "arena") return static_cast<RegionId>(i);
  return -1;
}

Traffic exchange_of(const Graph& graph, const Node& node) {
  const auto values = [&](ValueId id) { return static_cast<size_t>(graph.value(id).type.shape.elements()); };
  if (node.op == &kAllReduce) return all_reduce_traffic(values(node.in[0]), node.attrs.as<CollectiveAttrs>().ranks);
  if (node.op == &kAllGather) return all_gather_traffic(values(node.in[0]), node.attrs.as<AllGatherAttrs>().ranks);
  return {};
}

// "decoder.layers.3.self_attention" is of the layer "decoder.layers.3", "norm.weight" of the block "norm".
std::string block_name(const std::string& path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (is_number(std::string_view(path).substr(begin, end - begin))) return path.substr(0, end);
    begin = end + 1;
  }
  return path.substr(0, path.find('.'));
}

namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

bool is_layer_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot != std::string::npos && is_number(std::string_view(name).substr(dot + 1));
}

// The blocks in the order of the forward pass. A block that is returned to, as a shared embedding is at the end, is
// another one.
void find_blocks(RankWork& work) {
  std::map<std::string, std::vector<size_t>> known;
  work.block_of.assign(work.nodes.size(), 0);
  const auto is_forward = [&](size_t i) {
    return work.nodes[i].phase == StepPhase::kForward || work.nodes[i].phase == StepPhase::kBoth;
  };
  for (size_t i = 0; i < work.nodes.size(); ++i) {
    if (!is_forward(i)) continue;
    const std::string name = block_name(work.nodes[i].module);
    // What is outside of modules belongs to what it follows.
    if (work.blocks.empty() || (!name.empty() && name != work.blocks.back().name)) {
      const auto same = known.find(name);
      // Equal layers are never left and returned to: nodes that a pass has moved are.
      if (same != known.end() && is_layer_name(name)) {
        work.block_of[i] = same->second.back();
        continue;
      }
      known[name].push_back(work.blocks.size());
      work.blocks.push_back({.name = name, .is_layer = is_layer_name(name)});
    }
    work.block_of[i] = work.blocks.size() - 1;
  }
  if (work.blocks.empty()) work.blocks.push_back({.name = "", .is_layer = false});
  // The backward pass goes through them from the last to the first.
  size_t current = work.blocks.size() - 1;
  for (size_t i = 0; i < work.nodes.size(); ++i) {
    if (!is_forward(i) && work.nodes[i].phase == StepPhase::kBackward) {
      const auto same = known.find(block_name(work.nodes[i].module));
      if (!work.nodes[i].module.empty() && same != known.end()) {
        const auto& blocks = same->second;
        const auto after = std::ranges::upper_bound(blocks, current);
        current = after == blocks.begin() ? blocks.front() : *(after - 1);
      }
      work.block_of[i] = current;
    }
    if (work.nodes[i].phase == StepPhase::kUpdate) continue;
    ModelBlock& block = work.blocks[work.block_of[i]];
    block.seconds += work.nodes[i].seconds, block.kept_bytes += work.nodes[i].kept_bytes;
  }
}

void count_parameters(RankWork& work, const ParameterLayout& layout) {
  for (const ParameterSlot& slot : layout.trained()) {
    const std::string name = block_name(slot.spec.name);
    const auto block = std::ranges::find(work.blocks, name, &ModelBlock::name);
    (block == work.blocks.end() ? work.blocks.front() : *block).parameters += slot.spec.shape.elements();
  }
}

void find_passed_values(RankWork& work, const Graph& graph) {
  std::map<ValueId, size_t> last_reader;
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    if (work.nodes[at(id)].phase != StepPhase::kForward && work.nodes[at(id)].phase != StepPhase::kBoth) continue;
    const Node& node = graph.node(id);
    const auto root = [&](size_t i) { return root_of(graph, node.in[i]).value; };
    const auto is_earlier = [&](ValueId value) {
      const NodeId producer = graph.value(value).producer;
      return producer != kNone && work.block_of[at(producer)] < work.block_of[at(id)];
    };
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (graph.value(root(i)).producer == kNone) continue;
      // The addition at a layer's end, which the next layer's norm was fused with: a stage sends the sum.
      if (node.op == &kResidualNorm && i == 1 && is_earlier(root(0)) && is_earlier(root(1))) continue;
      size_t& last = last_reader[root(i)];
      last = std::max(last, work.block_of[at(id)]);
    }
  }
  for (const auto& [value, last] : last_reader) {
    const NodeId producer = graph.value(value).producer;
    const size_t from = work.block_of[at(producer)];
    if (work.nodes[at(producer)].phase == StepPhase::kForward && from < last)
      work.passed.push_back({from, last, static_cast<double>(graph.value(value).type.bytes())});
  }
}

void find_buckets(RankWork& work, const Plan& plan, const Trainer& trainer) {
  const ParameterLayout& layout = trainer.layout();
  const bool is_held = !trainer.has_whole_gradient();
  const std::vector<GradientBucket> buckets = is_held ? trainer.buckets() : gradient_buckets(layout);
  std::vector<NodeId> last;
  if (is_held)
    for (const HeldBucket& bucket : held_buckets(plan)) last.push_back(bucket.ready);
  else
    last = last_writers(plan, layout, buckets);
  for (size_t i = 0; i < buckets.size(); ++i)
    work.buckets.push_back({.values = static_cast<size_t>(layout.ranges()[buckets[i].range].count),
                            .part = {static_cast<size_t>(buckets[i].first), static_cast<size_t>(buckets[i].count)},
                            .last_writer = last[i]});
  std::ranges::stable_sort(work.buckets, {}, &RankWork::Bucket::last_writer);
}

double plan_seconds(const Plan& plan, const MachineSpeed& speed) {
  double seconds = 0;
  for (const Node& node : plan.graph.nodes()) seconds += estimated_node_seconds(plan.graph, node, speed);
  return seconds;
}

// "train.SHAPE" of the shape that was measured, or takes longest.
const Plan& chosen_plan(const NamedPlans& plans, const NodeTimes& times) {
  const Plan* chosen = nullptr;
  double longest = -1;
  for (const auto& [name, plan] : plans) {
    if (!name.starts_with("train.")) continue;
    if (times.shape >= 0 && name != "train." + std::to_string(times.shape)) continue;
    if (const double seconds = plan_seconds(*plan, times.speed); seconds > longest) longest = seconds, chosen = plan;
  }
  if (!chosen) fail_internal("a trainer without plans of its steps");
  return *chosen;
}

}  // namespace

RankWork work_of_rank(const Trainer& trainer, const NodeTimes& times) {
  const NamedPlans plans = trainer.plans();
  const Plan& plan = chosen_plan(plans, times);
  const PlanProfile profile = describe_plan("train", plan, arena_of(trainer.store()));
  const bool is_measured = times.measured.size() == profile.nodes.size();
  RankWork work{.arena_bytes = plan.arena_bytes,
                .shards = trainer.options().shards,
                .accumulate_steps = trainer.options().accumulate_steps,
                .divides_update = trainer.divides_moments(),
                .adds_each_shard = trainer.divides_gradients(),
                .bytes_per_second = times.speed.bandwidth};
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const NodeProfile& node = profile.nodes[i];
    const Node& of_graph = plan.graph.node(static_cast<NodeId>(i));
    const double seconds = is_measured ? times.measured[i] : estimated_node_seconds(plan.graph, of_graph, times.speed);
    work.nodes.push_back({.module = node.module,
                          .phase = node.phase,
                          .seconds = seconds,
                          .kept_bytes = node.kept_bytes,
                          .exchange = exchange_of(plan.graph, of_graph)});
    if (node.phase == StepPhase::kUpdate) work.update_seconds += seconds;
  }
  if (const auto apply = plans.find("apply"); apply != plans.end())
    work.update_seconds += is_measured ? times.update_seconds : plan_seconds(*apply->second, times.speed);
  find_blocks(work);
  const ParameterLayout& layout = trainer.layout();
  count_parameters(work, layout);
  find_passed_values(work, plan.graph);
  if (trainer.accumulates()) find_buckets(work, plan, trainer);
  for (const TrainedRange& range : layout.ranges()) work.ranges.push_back(static_cast<size_t>(range.count));
  work.counts = kLossTokensStops + static_cast<size_t>(layout.stored_count() - layout.buffer_offset());
  return work;
}

std::vector<size_t> balanced_cut(const std::vector<ModelBlock>& blocks, int stages) {
  const auto count = static_cast<size_t>(std::ranges::count_if(blocks, &ModelBlock::is_layer));
  if (static_cast<size_t>(stages) > std::max<size_t>(count, 1))
    fail_user("pipeline=" + std::to_string(stages) + " needs at least as many layers, and the model has " +
              std::to_string(count));
  const size_t n = blocks.size();
  std::vector<double> before(n + 1);
  std::vector<size_t> layers(n + 1);
  for (size_t i = 0; i < n; ++i)
    before[i + 1] = before[i] + blocks[i].seconds, layers[i + 1] = layers[i] + (blocks[i].is_layer ? 1 : 0);
  // best[s][i]: the least possible largest stage of the first i blocks in s + 1 stages, each of which has a layer.
  const double never = std::numeric_limits<double>::infinity();
  std::vector best(static_cast<size_t>(stages), std::vector<double>(n + 1, never));
  std::vector begin(static_cast<size_t>(stages), std::vector<size_t>(n + 1));
  const auto may_be_stage = [&](size_t first, size_t end) { return stages == 1 || layers[end] > layers[first]; };
  for (size_t i = 1; i <= n; ++i)
    if (may_be_stage(0, i)) best[0][i] = before[i];
  for (size_t s = 1; s < static_cast<size_t>(stages); ++s)
    for (size_t i = 1; i <= n; ++i)
      for (size_t first = 1; first < i; ++first) {
        if (!may_be_stage(first, i)) continue;
        const double largest = std::max(best[s - 1][first], before[i] - before[first]);
        if (largest < best[s][i]) best[s][i] = largest, begin[s][i] = first;
      }
  std::vector<size_t> cut(static_cast<size_t>(stages));
  for (size_t s = static_cast<size_t>(stages), end = n; s-- > 1; end = cut[s]) cut[s] = begin[s][end];
  return cut;
}

namespace {

// Seconds. Ranks that add gradients beside a backward pass look for messages this far apart (Wait::kPatiently in
// distributed/mpi/mpi_communicator.cpp, and what the system adds to so short a sleep).
constexpr double kLook = 1e-4;

}  // namespace

double seconds_of_shards(double gradient_bytes, const ShardShare& shards, int data_ranks, bool divides_update,
                         double bytes_per_second) {
  constexpr double kPasses = 6;
  const double norm = divides_update ? gradient_bytes / data_ranks : 0;
  return (static_cast<double>(shards.count() - 1) * kPasses * gradient_bytes + norm) / bytes_per_second;
}

TrainingStep step_of(const RankWork& work, const RankLayout& layout, bool detailed) {
  if (layout.interleave > 1 && work.accumulate_steps % layout.pipeline != 0)
    fail_user(
        "interleaved stages take micro-batches in groups of one for each rank: set accumulate_steps to a multiple of " +
        std::to_string(layout.pipeline) + ", not " + std::to_string(work.accumulate_steps));
  const std::vector<size_t> cut = balanced_cut(work.blocks, layout.stages());
  const auto stage_of = [&](size_t block) {
    return static_cast<size_t>(std::ranges::upper_bound(cut, block) - cut.begin()) - 1;
  };
  TrainingStep step{.layout = layout,
                    .micro_batches = work.shards.count() * work.accumulate_steps,
                    .adds_early = layout.tensor == 1 && layout.pipeline == 1,
                    .divides_update = work.divides_update};
  std::vector<ItemList> lists(cut.size(), ItemList(detailed));
  const ShardShare share{work.shards.shards, 0, layout.data};
  const auto gradient = [&](size_t values, Slice part, size_t after) -> GradientTraffic {
    const int64_t rounds = work.adds_each_shard ? work.shards.count() : 1;
    const ShardShare of_round{work.adds_each_shard ? layout.data : share.shards, 0, layout.data};
    const Traffic one = reduce_scatter_traffic(values, part, of_round);
    Traffic traffic;
    for (int64_t round = 0; round < rounds; ++round) traffic += one;
    return {.traffic = traffic,
            .add_seconds = static_cast<double>(rounds) * added_bytes(values, part, of_round) / work.bytes_per_second,
            .wait_seconds = step.adds_early ? kLook * static_cast<double>(traffic.exchanges) : 0,
            .after = after};
  };
  size_t bucket = 0;
  for (size_t i = 0; i < work.nodes.size(); ++i) {
    const NodeWork& node = work.nodes[i];
    if (node.phase == StepPhase::kUpdate) continue;
    ItemList& list = lists[stage_of(work.block_of[i])];
    list.add(node, work.blocks[work.block_of[i]].name);
    if (!step.adds_early) continue;
    for (; bucket < work.buckets.size() && work.buckets[bucket].last_writer <= static_cast<NodeId>(i); ++bucket) {
      list.close();
      list.stage.gradients.push_back(
          gradient(work.buckets[bucket].values, work.buckets[bucket].part, list.stage.backward.size()));
    }
  }
  std::vector<size_t> values(cut.size());
  double all = 0;
  for (size_t i = 0; i < work.blocks.size(); ++i) {
    values[stage_of(i)] += static_cast<size_t>(work.blocks[i].parameters);
    all += static_cast<double>(work.blocks[i].parameters);
  }
  for (size_t s = 0; s < lists.size(); ++s) {
    StageWork& stage = lists[s].stage;
    const std::vector<size_t> ranges = layout.pipeline == 1 ? work.ranges : std::vector<size_t>{values[s]};
    for (; step.adds_early && bucket < work.buckets.size(); ++bucket)
      stage.gradients.push_back(
          gradient(work.buckets[bucket].values, work.buckets[bucket].part, stage.backward.size()));
    double own_bytes = 0;
    for (const size_t range : ranges) {
      if (!step.adds_early) stage.gradients.push_back(gradient(range, {0, range}, stage.backward.size()));
      stage.gather += gather_slices_traffic(range, layout.data);
      own_bytes += 4.0 * static_cast<double>(range);
    }
    stage.counts = sum_everywhere_traffic(work.counts, share);
    const double part = layout.pipeline == 1 ? 1 : static_cast<double>(values[s]) / std::max(all, 1.0);
    stage.update_seconds = part * work.update_seconds;
    stage.update_seconds +=
        seconds_of_shards(own_bytes, work.shards, layout.data, step.divides_update, work.bytes_per_second);
    for (const PassedValue& value : work.passed)
      if (stage_of(value.from) <= s && s < stage_of(value.to)) stage.sent_bytes += value.bytes;
    step.stages.push_back(std::move(stage));
  }
  return step;
}

MemoryForecast stage_memory(const MemoryForecast& whole, const RankWork& work, const RankLayout& layout) {
  if (layout.pipeline == 1) return whole;
  const std::vector<size_t> cut = balanced_cut(work.blocks, layout.stages());
  double all_kept = 0, all_parameters = 0;
  for (const ModelBlock& block : work.blocks)
    all_kept += block.kept_bytes, all_parameters += static_cast<double>(block.parameters);
  const double transient = std::max(0.0, static_cast<double>(work.arena_bytes) - all_kept);
  MemoryForecast largest;
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const std::vector<int64_t> in_flight =
        pipeline_slots({layout.pipeline, layout.interleave, work.accumulate_steps}, rank);
    double kept = 0, parameters = 0;
    for (int chunk = 0; chunk < layout.interleave; ++chunk) {
      const auto s = static_cast<size_t>(chunk * layout.pipeline + rank);
      const size_t end = s + 1 < cut.size() ? cut[s + 1] : work.blocks.size();
      for (size_t block = cut[s]; block < end; ++block) {
        kept += static_cast<double>(in_flight[static_cast<size_t>(chunk)]) * work.blocks[block].kept_bytes;
        parameters += static_cast<double>(work.blocks[block].parameters);
      }
    }
    MemoryForecast of_rank = whole;
    for (MemoryItem& item : of_rank.items) {
      const auto is = [&](MemoryKind kind) { return item.name == memory_kind_name(kind); };
      if (is(MemoryKind::kParameters) || is(MemoryKind::kOptimizer) || is(MemoryKind::kGradients))
        item.bytes = static_cast<uint64_t>(static_cast<double>(item.bytes) * parameters / all_parameters);
      if (is(MemoryKind::kActivations)) item.bytes = static_cast<uint64_t>(kept + transient);
    }
    if (of_rank.peak() > largest.peak()) largest = of_rank;
  }
  return largest;
}

}  // namespace linnet

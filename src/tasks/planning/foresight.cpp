#include "tasks/planning/foresight.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "comm/shard_tree.h"
#include "config/task_rows.h"
#include "tasks/planning/measured_times.h"
#include "tasks/planning/rank_work.h"

namespace linnet {
namespace {

// The configuration of a rank, and what its trainer would be told. A pipeline is not part of it: its stages are cut
// from the plan of the whole model.
Config config_of_rank(const ForesightRequest& request, const RankLayout& layout) {
  Config config = request.config;
  TrainConfig& train = config.train;
  if (request.batch_per_group) {
    config.data.batch_size *= layout.data, config.data.batch_tokens *= layout.data;
    train.data_shards *= layout.data;
  }
  if (train.data_shards == 0) train.data_shards = layout.data;
  check_share({train.data_shards, 0, layout.data});
  config.process = {0, layout.data * layout.tensor};
  train.parallel = layout.tensor > 1 ? "tensor=" + std::to_string(layout.tensor) : "";
  if (layout.tensor * layout.pipeline > 1) {
    // What training asks for: nothing is generated, and ranks do not choose each for itself what to compute again.
    train.sample_length = 0;
    if (task_kind(config) == TaskKind::kTranslation) train.metric = "loss";
    if (train.recompute == "auto") train.memory.clear();
  }
  validate(config);
  return config;
}

// The batch of one data group, by one rank.
Config config_of_one(const ForesightRequest& request, const RankLayout& layout) {
  Config config = config_of_rank(request, layout);
  config.data.batch_size /= layout.data, config.data.batch_tokens /= layout.data;
  config.train.data_shards /= layout.data;
  config.process = {};
  config.train.parallel.clear();
  return config;
}

struct PlannedRank {
  PlanAnswer answer;
  RankWork work;
};

// `here`: ranks that share this machine.
PlannedRank plan_rank(const ForesightRequest& request, Config config, int here) {
  const bool limited = !config.train.memory.empty();
  const bool may_cut = limited && config.train.micro_batches == 0;
  PlannedRank planned;
  std::optional<uint64_t> resident = request.resident;
  const auto plan = [&] {
    const Config part = of_one_shard(config);
    const auto visit = [&](const Trainer& trainer) { planned.work = work_of_rank(trainer, {.speed = request.speed}); };
    planned.answer = plan_memory(
        {.config = part, .memory = request.memory, .exact = request.exact, .resident = resident, .visit = visit});
    resident = planned.answer.forecast.resident;
  };
  plan();
  while (may_cut && planned.answer.forecast.peak() > request.memory && halve_micro_batches(config)) plan();
  if (request.measured) planned.work = measured_work(of_one_shard(config), request.speed, here);
  return planned;
}

double seconds_of(const PlannedRank& one, const Network& network) {
  return forecast_step(step_of(one.work, {}, false), network).seconds;
}

Foresight foresee_with(const ForesightRequest& request, const RankLayout& layout, double alone) {
  const PlannedRank rank =
      plan_rank(request, config_of_rank(request, layout), std::min(request.ranks_here, layout.ranks()));
  Foresight found{.layout = layout, .recompute = request.config.train.recompute, .plan = rank.answer};
  found.memory = stage_memory(rank.answer.forecast, rank.work, layout);
  found.fits = found.memory.peak() <= request.memory;
  found.simulated = step_of(rank.work, layout, true);
  found.micro_batches = found.simulated.micro_batches;
  found.step = forecast_step(found.simulated, request.network);
  found.efficiency = alone / (layout.tensor * layout.pipeline * found.step.seconds);
  found.groups_per_second = (request.batch_per_group ? layout.data : 1) / found.step.seconds;
  return found;
}

// The layout with as many micro-batches as is fastest, of those that fit if any does.
Foresight best_of_layout(ForesightRequest request, const RankLayout& layout, double alone) {
  std::optional<Foresight> best;
  const auto try_it = [&] {
    Foresight found = foresee_with(request, layout, alone);
    const auto order = [](const Foresight& f) { return std::tuple(f.fits, f.groups_per_second); };
    if (!best || order(found) > order(*best)) best = std::move(found);
  };
  try_it();
  if (layout.pipeline == 1) return *best;
  // Beyond a few for each stage the bubble is small, and products become small too.
  constexpr int64_t kMostForEachStage = 16;
  Config& config = request.config;
  while (best->micro_batches < kMostForEachStage * layout.pipeline) {
    const int64_t before = best->micro_batches;
    config.train.micro_batches = 2 * std::max<int64_t>(config.train.micro_batches, 1);
    try {
      try_it();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      break;
    }
    if (best->micro_batches == before) break;  // smaller ones are slower
  }
  return *best;
}

}  // namespace

Foresight foresee(ForesightRequest request, const RankLayout& layout) {
  const PlannedRank one = plan_rank(request, config_of_one(request, layout), 1);
  request.resident = one.answer.forecast.resident;
  return foresee_with(request, layout, seconds_of(one, request.network));
}

LayoutSearch search_layouts(ForesightRequest request, int ranks) {
  LayoutSearch search;
  std::map<int, double> alone;  // seconds of the batch of one data group, by their number
  const PlannedRank one = plan_rank(request, config_of_one(request, {}), 1);
  request.resident = one.answer.forecast.resident;
  const int64_t layers = std::ranges::count_if(one.work.blocks, &ModelBlock::is_layer);
  silence_log();  // what was said of the data holds for every layout
  for (const RankLayout& layout : layouts_of(ranks, ranks, static_cast<int>(std::max<int64_t>(layers, 1)))) {
    try {
      if (!alone.contains(layout.data))
        alone[layout.data] = seconds_of(plan_rank(request, config_of_one(request, layout), 1), request.network);
      Foresight best = best_of_layout(request, layout, alone[layout.data]);
      if (!best.fits && request.config.train.recompute == "auto" && layout.tensor * layout.pipeline > 1) {
        ForesightRequest smaller = request;
        smaller.config.train.recompute = "block", smaller.config.train.memory.clear();
        if (Foresight other = best_of_layout(smaller, layout, alone[layout.data]);
            other.memory.peak() < best.memory.peak())
          best = std::move(other);
      }
      search.found.push_back(std::move(best));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      ++search.refused;
      if (search.why_refused.empty()) search.why_refused = layout_text(layout) + ": " + error.what();
    }
  }
  std::ranges::stable_sort(search.found, std::ranges::greater{},
                           [](const Foresight& f) { return std::tuple(f.fits, f.groups_per_second); });
  return search;
}

}  // namespace linnet

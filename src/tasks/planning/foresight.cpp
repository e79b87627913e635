#include "tasks/planning/foresight.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "distributed/comm/shard_tree.h"
#include "config/task_rows.h"
#include "tasks/planning/measured_times.h"
#include "tasks/planning/rank_work.h"
#include "tasks/planning/stage_work.h"

namespace linnet {
namespace {

// The configuration of a rank, and what its trainer would be told; `pipeline`: its number in its pipeline. Without it,
// of a rank that has all layers.
Config config_of_rank(const ForesightRequest& request, const RankLayout& layout, std::optional<int> pipeline = {}) {
  Config config = request.config;
  TrainConfig& train = config.train;
  if (request.batch_per_group) {
    config.data.batch_size *= layout.data, config.data.batch_tokens *= layout.data;
    train.data_shards *= layout.data;
  }
  if (train.data_shards == 0) train.data_shards = layout.data;
  check_share({train.data_shards, 0, layout.data});
  if (pipeline) {
    config.process = {*pipeline * layout.tensor, layout.ranks()};
    train.parallel = layout_text(layout);
  } else {
    config.process = {0, layout.data * layout.tensor};
    train.parallel = layout.tensor > 1 ? "tensor=" + std::to_string(layout.tensor) : "";
  }
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

// The plans that the ranks of a pipeline would make.
struct PlannedPipeline {
  PlanAnswer answer;  // of the rank that takes most
  TrainingStep step;
};

PlannedPipeline plan_pipeline(const ForesightRequest& request, const RankLayout& layout) {
  int64_t micro_batches = request.config.train.micro_batches;
  const auto plan = [&] {
    PlannedPipeline planned;
    std::vector<RankStages> ranks;
    for (int rank = 0; rank < layout.pipeline; ++rank) {
      Config config = config_of_rank(request, layout, rank);
      config.train.micro_batches = micro_batches;
      const auto visit = [&](const Trainer& trainer) {
        ranks.push_back(stages_of_rank(trainer, request.speed, layout, true));
      };
      PlanAnswer answer = plan_memory({.config = of_one_shard(config),
                                       .memory = request.memory,
                                       .exact = request.exact,
                                       .resident = request.resident,
                                       .visit = visit});
      if (rank == 0 || answer.forecast.peak() > planned.answer.forecast.peak()) planned.answer = std::move(answer);
    }
    planned.step = step_of_stages(ranks, layout);
    return planned;
  };
  PlannedPipeline planned = plan();
  Config config = config_of_rank(request, layout, 0);
  const bool may_cut = !config.train.memory.empty() && micro_batches == 0;
  while (may_cut && planned.answer.forecast.peak() > request.memory && halve_micro_batches(config)) {
    micro_batches = config.train.micro_batches;
    planned = plan();
  }
  return planned;
}

double seconds_of(const PlannedRank& one, const Network& network) {
  return forecast_step(step_of(one.work, {}, false), network).seconds;
}

// Of the parts that are known: the rest follows from them.
Foresight finish(Foresight found, const ForesightRequest& request, double alone) {
  const RankLayout& layout = found.layout;
  found.fits = found.memory.peak() <= request.memory;
  found.micro_batches = found.simulated.micro_batches;
  found.step = forecast_step(found.simulated, request.network);
  found.efficiency = alone / (layout.tensor * layout.pipeline * found.step.seconds);
  found.groups_per_second = (request.batch_per_group ? layout.data : 1) / found.step.seconds;
  return found;
}

// A pipeline's stages are cut from the plan of the whole model: an estimate.
Foresight foresee_with(const ForesightRequest& request, const RankLayout& layout, double alone) {
  const PlannedRank rank =
      plan_rank(request, config_of_rank(request, layout), std::min(request.ranks_here, layout.ranks()));
  Foresight found{.layout = layout, .recompute = request.config.train.recompute, .plan = rank.answer};
  found.simulated = step_of(rank.work, layout, true);
  found.memory = stage_memory(rank.answer.forecast, rank.work, layout);
  found.memory_is_estimated = layout.pipeline > 1;
  return finish(std::move(found), request, alone);
}

// With the plans that the ranks of a pipeline would make. Measured times are those of the whole model's nodes.
Foresight foresee_exactly(const ForesightRequest& request, const RankLayout& layout, double alone) {
  if (layout.pipeline == 1) return foresee_with(request, layout, alone);
  PlannedPipeline pipeline = plan_pipeline(request, layout);
  Foresight found{.layout = layout, .recompute = request.config.train.recompute, .plan = pipeline.answer};
  found.simulated = request.measured ? foresee_with(request, layout, alone).simulated : std::move(pipeline.step);
  found.memory = pipeline.answer.forecast;
  return finish(std::move(found), request, alone);
}

// The layout with as many micro-batches as is fastest, of those that fit if any does.
Foresight best_of_layout(ForesightRequest request, const RankLayout& layout, double alone) {
  std::optional<Foresight> best;
  const auto try_it = [&] {
    Foresight found = foresee_with(request, layout, alone);
    const auto order = [](const Foresight& f) { return std::tuple(f.fits, f.groups_per_second); };
    if (!best || order(found) > order(*best)) best = std::move(found);
  };
  if (layout.interleave > 1 && request.config.train.accumulate_steps % layout.pipeline != 0)
    request.config.train.micro_batches = std::max<int64_t>(request.config.train.micro_batches, 1) * layout.pipeline;
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
  return foresee_exactly(request, layout, seconds_of(one, request.network));
}

namespace {

// A layout of the search, with the micro-batches and the recomputation that suit it. If it is a pipeline, also those
// with interleaved stages.
std::vector<Foresight> search_layout(const ForesightRequest& request, const RankLayout& layout, double alone,
                                     int64_t layers) {
  const auto best_of = [&](const RankLayout& each) {
    Foresight best = best_of_layout(request, each, alone);
    if (!best.fits && request.config.train.recompute == "auto" && each.tensor * each.pipeline > 1) {
      ForesightRequest smaller = request;
      smaller.config.train.recompute = "block", smaller.config.train.memory.clear();
      if (Foresight other = best_of_layout(smaller, each, alone); other.memory.peak() < best.memory.peak())
        best = std::move(other);
    }
    return best;
  };
  std::vector<Foresight> found{best_of(layout)};
  RankLayout interleaved = layout;
  for (interleaved.interleave = 2; layout.pipeline > 1 && interleaved.stages() <= layers; interleaved.interleave *= 2) {
    try {
      found.push_back(best_of(interleaved));
    } catch (const Error& error) {  // its batches cannot be cut into so many micro-batches
      if (error.kind() != ErrorKind::kUser) throw;
      break;
    }
  }
  return found;
}

// The request that has led to what was found.
ForesightRequest as_found(ForesightRequest request, const Foresight& found) {
  TrainConfig& train = request.config.train;
  const int groups = request.batch_per_group ? 1 : found.layout.data;
  const int64_t shards = std::max<int64_t>(train.data_shards / groups, 1);
  train.micro_batches = found.micro_batches / (shards * std::max<int64_t>(train.accumulate_steps, 1));
  if (found.recompute != train.recompute) train.recompute = found.recompute, train.memory.clear();
  return request;
}

}  // namespace

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
      for (Foresight& each : search_layout(request, layout, alone[layout.data], layers))
        search.found.push_back(std::move(each));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      ++search.refused;
      if (search.why_refused.empty()) search.why_refused = layout_text(layout) + ": " + error.what();
    }
  }
  const auto sort = [&] {
    std::ranges::stable_sort(search.found, std::ranges::greater{},
                             [](const Foresight& f) { return std::tuple(f.fits, f.groups_per_second); });
  };
  sort();
  // Those that may be chosen are planned as their ranks would.
  constexpr size_t kPlanned = 8;
  std::vector<Foresight> exact;
  for (size_t i = 0; i < search.found.size(); ++i) {
    Foresight& found = search.found[i];
    if (i >= kPlanned || found.layout.pipeline == 1) {
      exact.push_back(std::move(found));
      continue;
    }
    try {
      exact.push_back(foresee_exactly(as_found(request, found), found.layout, alone[found.layout.data]));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      ++search.refused;
      if (search.why_refused.empty()) search.why_refused = layout_text(found.layout) + ": " + error.what();
    }
  }
  search.found = std::move(exact);
  sort();
  return search;
}

}  // namespace linnet

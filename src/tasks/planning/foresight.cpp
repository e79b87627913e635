#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "distributed/comm/shard_sum.h"
#include "tasks/planning/plan_memory.h"

namespace linnet {
namespace {
// Calls `call`, and returns false on a user error: an impossible layout or batch.
template <class Call> bool is_possible(Call&& call, std::string* why = nullptr) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser) throw;
    if (why && why->empty()) *why = error.what();
    return false;
  }
}

// Settings of ranks that share a model: no generation, and no recomputation that each rank chooses for itself.
void share_layers(Config& config) {
  TrainConfig& train = config.train;
  train.sample_length = 0;
  if (task_kind(config) == TaskKind::kTranslation) train.metric = "loss";
  if (train.recompute == "auto") train.memory.clear();
}

// A rank's configuration, by its number in the pipeline, with its trainer's options.
Config config_of_rank(const ForesightRequest& request, const RankLayout& layout, int pipeline) {
  Config config = request.config;
  TrainConfig& train = config.train;
  if (request.batch_per_group) {
    config.data.batch_size *= layout.data, config.data.batch_tokens *= layout.data;
    train.data_shards *= layout.data;
  }
  if (train.data_shards == 0) train.data_shards = layout.data;
  check_share({train.data_shards, 0, layout.data});
  config.process = {pipeline * layout.tensor, layout.ranks()};
  train.parallel = layout_text(layout);
  if (layout.ranks_of_model() > 1) share_layers(config);
  validate(config);
  return config;
}

// The batch of one data group on one rank.
ForesightRequest request_of_one(ForesightRequest request, const RankLayout& layout) {
  Config& config = request.config;
  if (!std::exchange(request.batch_per_group, false)) {
    const int64_t shards = config.train.data_shards > 0 ? config.train.data_shards : layout.data;
    check_share({shards, 0, layout.data});
    config.data.batch_size /= layout.data, config.data.batch_tokens /= layout.data;
    config.train.data_shards = shards / layout.data;
  }
  if (layout.ranks_of_model() > 1) share_layers(config);
  return request;
}

// The plans of a model's ranks, one for each group of tensor ranks.
struct PlannedRanks {
  PlanAnswer answer;  // of the largest rank
  std::vector<RankStages> stages;
  int layers = 0;
  int64_t micro_batches = 0;
};

PlannedRanks plan_ranks_once(const ForesightRequest& request, const RankLayout& layout, int64_t micro_batches) {
  PlannedRanks planned{.micro_batches = micro_batches};
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    Config config = config_of_rank(request, layout, rank);
    config.train.micro_batches = micro_batches;
    const auto visit = [&](const Trainer& trainer) {
      planned.stages.push_back(stages_of_rank(trainer, request.speed, layout));
      planned.layers += count_layers(trainer.state().layout());
    };
    PlanAnswer answer = plan_memory({.config = of_one_shard(config),
        .memory = request.memory,
        .exact = request.exact,
        .resident = request.resident,
        .visit = visit});
    if (rank == 0 || answer.forecast.peak() > planned.answer.forecast.peak()) planned.answer = std::move(answer);
  }
  return planned;
}

// Uses as many micro-batches as the memory limit needs, if the configuration leaves them open.
PlannedRanks plan_ranks(ForesightRequest request, const RankLayout& layout) {
  Config config = config_of_rank(request, layout, 0);
  const bool may_cut = !config.train.memory.empty() && config.train.micro_batches == 0;
  PlannedRanks planned = plan_ranks_once(request, layout, config.train.micro_batches);
  request.resident = planned.answer.forecast.resident;
  while (may_cut && planned.answer.forecast.peak() > request.memory && double_micro_batches(config))
    planned = plan_ranks_once(request, layout, config.train.micro_batches);
  return planned;
}

double seconds_of(PlannedRanks one, const Network& network) {
  return forecast_step(step_of_ranks(std::move(one.stages), {}), network).seconds;
}

// `alone`: seconds of one rank with the batch of one data group.
Foresight foresee_beside(const ForesightRequest& request, const RankLayout& layout, double alone) {
  PlannedRanks ranks = plan_ranks(request, layout);
  Foresight found{.layout = layout, .recompute = request.config.train.recompute, .plan = std::move(ranks.answer)};
  found.micro_batches = ranks.micro_batches;
  found.fits = found.plan.forecast.peak() <= request.memory;
  found.simulated = step_of_ranks(std::move(ranks.stages), layout);
  found.step = forecast_step(found.simulated, request.network);
  found.efficiency = alone / (layout.ranks_of_model() * found.step.seconds);
  found.groups_per_second = (request.batch_per_group ? layout.data : 1) / found.step.seconds;
  return found;
}

// The layout with the fastest number of micro-batches, among those that fit if any does.
Foresight best_of_layout(ForesightRequest request, const RankLayout& layout, double alone) {
  std::optional<Foresight> best;
  const auto try_it = [&] {
    Foresight found = foresee_beside(request, layout, alone);
    const bool is_better = !best || found.order() > best->order();
    if (is_better) best = std::move(found);
    return is_better;
  };
  TrainConfig& train = request.config.train;
  if (layout.interleave > 1 && train.accumulate_steps % layout.pipeline != 0)
    train.micro_batches = std::max<int64_t>(train.micro_batches, 1) * layout.pipeline;
  try_it();
  // Beyond a few for each stage the bubble is small, and so are products.
  constexpr int64_t kMostForEachStage = 16;
  bool goes_on = layout.pipeline > 1;
  while (goes_on && best->simulated.micro_batches < kMostForEachStage * layout.pipeline) {
    train.micro_batches = 2 * std::max<int64_t>(train.micro_batches, 1);
    goes_on = is_possible([&] { goes_on = try_it(); }) && goes_on;
  }
  return *best;
}

// A layout with suitable micro-batches and recomputation; for pipelines also with interleaved stages.
std::vector<Foresight> search_layout(
    const ForesightRequest& request, const RankLayout& layout, double alone, int layers) {
  const auto best_of = [&](const RankLayout& each) {
    Foresight best = best_of_layout(request, each, alone);
    if (!best.fits && request.config.train.recompute == "auto" && each.ranks_of_model() > 1) {
      ForesightRequest smaller = request;
      smaller.config.train.recompute = "block", smaller.config.train.memory.clear();
      if (Foresight other = best_of_layout(smaller, each, alone);
          other.plan.forecast.peak() < best.plan.forecast.peak())
        best = std::move(other);
    }
    return best;
  };
  std::vector<Foresight> found{best_of(layout)};
  RankLayout interleaved = layout;
  for (interleaved.interleave = 2; layout.pipeline > 1 && interleaved.stages() <= layers; interleaved.interleave *= 2)
    if (!is_possible([&] { found.push_back(best_of(interleaved)); })) break;
  return found;
}
}  // namespace

Foresight foresee(ForesightRequest request, const RankLayout& layout) {
  PlannedRanks one = plan_ranks(request_of_one(request, layout), {});
  request.resident = one.answer.forecast.resident;
  return foresee_beside(request, layout, seconds_of(std::move(one), request.network));
}

LayoutSearch search_layouts(ForesightRequest request, int ranks) {
  LayoutSearch search;
  std::map<int, double> alone;  // seconds of one data group's batch, by number of groups
  const PlannedRanks one = plan_ranks(request_of_one(request, {}), {});
  request.resident = one.answer.forecast.resident;
  silence_log();  // messages about the data hold for every layout
  for (const RankLayout& layout : layouts_of(ranks, ranks, std::max(one.layers, 1))) {
    std::string why;
    const auto search_it = [&] {
      if (!alone.contains(layout.data))
        alone[layout.data] = seconds_of(plan_ranks(request_of_one(request, layout), {}), request.network);
      for (Foresight& each : search_layout(request, layout, alone[layout.data], one.layers))
        search.found.push_back(std::move(each));
    };
    if (is_possible(search_it, &why)) continue;
    if (search.refused++ == 0) search.why_refused = layout_text(layout) + ": " + why;
  }
  std::ranges::stable_sort(search.found, std::ranges::greater{}, &Foresight::order);
  return search;
}
}  // namespace linnet

#include "training/run/run_schedule.h"

#include <algorithm>
#include <cmath>

namespace linnet {

Schedule schedule_of(const Config& whole) {
  const TrainConfig& config = whole.train;
  Schedule schedule;
  using Kind = Schedule::Kind;
  schedule.kind = config.schedule == "linear"         ? Kind::kLinear
                  : config.schedule == "cosine"       ? Kind::kCosine
                  : config.schedule == "inverse_sqrt" ? Kind::kInverseSqrt
                                                      : Kind::kConstant;
  schedule.peak = peak_learning_rate(whole), schedule.final = config.final_learning_rate;
  schedule.warmup_steps = config.warmup_steps;
  return schedule;
}

int64_t last_step(const TrainConfig& config, int64_t batches) {
  if (config.max_epochs == 0 || batches == 0) return config.max_steps;
  // With one shard the last step of an epoch takes what is left of it; with several, a step goes on into the next
  // epoch.
  const auto per_step = static_cast<double>(config.accumulate_steps * std::max<int64_t>(config.micro_batches, 1) *
                                            std::max<int64_t>(config.data_shards, 1));
  const auto epochs = static_cast<double>(config.max_epochs), count = static_cast<double>(batches);
  const double steps =
      config.data_shards > 1 ? std::ceil(epochs * count / per_step) : epochs * std::ceil(count / per_step);
  return steps < static_cast<double>(config.max_steps) ? static_cast<int64_t>(steps) : config.max_steps;
}

}  // namespace linnet

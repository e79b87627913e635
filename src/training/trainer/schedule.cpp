#include "training/trainer/schedule.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "base/fail.h"

namespace linnet {
double learning_rate(const Schedule& schedule, int64_t step) {
  const bool ends = schedule.kind == Schedule::Kind::kLinear || schedule.kind == Schedule::Kind::kCosine;
  if (ends && schedule.max_steps < 1)
    fail_user("a linear or cosine schedule needs max_steps, the steps of the whole training");
  const auto now = static_cast<double>(step);
  const int64_t most = schedule.max_steps > 0 ? schedule.max_steps / 4 : schedule.warmup_steps;
  const auto warmup = static_cast<double>(std::min(schedule.warmup_steps, most));
  if (now < warmup) return schedule.peak * now / warmup;
  const double span = std::max(1.0, static_cast<double>(schedule.max_steps) - warmup);
  const double done = std::clamp((now - warmup) / span, 0.0, 1.0);
  switch (schedule.kind) {
    case Schedule::Kind::kConstant: return schedule.peak;
    case Schedule::Kind::kLinear: return schedule.peak + (schedule.final - schedule.peak) * done;
    case Schedule::Kind::kCosine:
      return schedule.final + (schedule.peak - schedule.final) * (1 + std::cos(std::numbers::pi * done)) / 2;
    case Schedule::Kind::kInverseSqrt: return schedule.peak * std::sqrt(std::max(1.0, warmup) / std::max(1.0, now));
  }
  return schedule.peak;
}
}  // namespace linnet

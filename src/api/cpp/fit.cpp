#include <algorithm>
#include <cmath>
#include "api/cpp/learner_state.h"
#include "base/error.h"
#include "engine/plan/state_names.h"

namespace linnet {
Rate::Rate(double rate) : rate_([rate](int64_t) { return rate; }) {}
Rate::Rate(const Schedule& schedule) : rate_([schedule](int64_t step) { return learning_rate(schedule, step); }) {
  (void)rate_(1);  // reports a schedule without its end before the first step
}
Rate::Rate(std::function<double(int64_t)> rate) : rate_(std::move(rate)) {
  if (!rate_) fail_user("a learning rate is an empty function");
}

namespace {
void check_fit_options(const FitOptions& options) {
  if (options.epochs < 0 || options.max_steps < 0 || options.patience < 0)
    fail_user("fit() needs epochs, max_steps and patience that are not negative");
  if (options.patience > 0 && !options.validation) fail_user("fit() with patience needs validation data");
}

struct RunningMean {
  double sum = 0;
  int64_t count = 0;
  void add(const StepResult& result) {
    sum += result.loss * static_cast<double>(result.count);
    count += result.count;
  }
  double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};
}  // namespace

FitReport Learner::fit(Loader& loader, const FitOptions& options) {
  check_fit_options(options);
  State& s = state();
  const auto accumulate = static_cast<size_t>(s.options.accumulate);
  FitReport report;
  std::vector<float> best_weights;
  int64_t worse = 0;
  bool go_on = true;
  const auto stop = [&](const char* reason) {
    if (go_on) report.reason = reason;
    go_on = false;
  };
  const int64_t epochs = options.epochs > 0 ? options.epochs : options.max_steps > 0 ? options.max_steps : 1;
  const int64_t last_epoch = loader.position().epoch + epochs;
  std::vector<Arrays> micro(accumulate);
  while (go_on && loader.position().epoch < last_epoch) {
    const int64_t epoch = loader.position().epoch;
    RunningMean mean;
    FitEvent event{.epoch = epoch};
    while (go_on && loader.position().epoch == epoch) {
      // A step may take micro-batches of the next epoch, so that every batch is trained on.
      for (Arrays& batch : micro) batch = loader.next();
      event.step = s.steps + 1;
      event.rate = options.rate(event.step);
      event.result = step(micro, event.rate);
      if (event.result.count == 0)
        throw Error(ErrorKind::kNumeric, "step " + std::to_string(event.step) +
                                             ": the loss counts no row of the batch; are all its labels negative?");
      if (!event.result.finite && !event.result.skipped)
        throw Error(ErrorKind::kNumeric,
            "step " + std::to_string(event.step) + ": loss or gradient is not finite; first in " + diagnose());
      mean.add(event.result);
      event.mean_loss = mean.value();
      ++report.steps;
      if (options.on_step && !options.on_step(event)) stop("callback");
      if (options.max_steps > 0 && report.steps >= options.max_steps) stop("max_steps");
    }
    ++report.epochs;
    report.loss = mean.value();
    if (options.validation) {
      event.evaluation = evaluate(*options.validation, options.metrics);
      if (!std::isfinite(event.evaluation->loss))
        throw Error(
            ErrorKind::kNumeric, "epoch " + std::to_string(report.epochs) + ": the validation loss is not finite");
      if (!report.best || event.evaluation->loss < report.best->loss) {
        report.best = event.evaluation;
        worse = 0;
        if (options.patience > 0) {
          const TrainingState& holder = s.weights().trainer->state();
          const ParameterLayout& layout = s.weights().layout;
          holder.pull();
          const float* weights = holder.flat(holder.evaluated());
          best_weights.assign(weights, weights + layout.trained_count());
          const float* untrained = holder.flat(state::kParameters) + layout.trained_count();
          best_weights.insert(
              best_weights.end(), untrained, untrained + (layout.stored_count() - layout.trained_count()));
        }
      } else if (options.patience > 0 && ++worse >= options.patience) {
        stop("patience");
      }
    }
    if (options.on_epoch && !options.on_epoch(event)) stop("callback");
  }
  stop("epochs");
  if (!best_weights.empty()) {
    std::ranges::copy(best_weights, s.weights().trainer->state().flat(state::kParameters));
    push();
  }
  return report;
}
}  // namespace linnet

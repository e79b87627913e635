#include "app/run_reporter.h"

#include <fmt/format.h>

#include "base/process_memory.h"

namespace linnet {
namespace {

constexpr int kMemoryEvery = 64;  // steps between looks at /proc

double resident_mb() { return static_cast<double>(resident_bytes()) / 1e6; }

double running_average(double average, double value, double keep) {
  return average == 0 ? value : keep * average + (1 - keep) * value;
}

// Two lines that change from one evaluation to the next.
size_t sample(int64_t step, size_t i, size_t count) {
  return (static_cast<size_t>(step) * 7919 + i * (count / 2 + 1)) % count;
}

}  // namespace

double metric_of(const TrainConfig& config, const EvaluationResult& result) {
  if (config.metric == "bleu") return result.bleu.score;
  return config.metric == "exact_match" ? result.exact_match : -result.loss;
}

RunReporter::RunReporter(const TrainConfig& config, const std::string& metrics_path, const Progress& resumed)
    : config_(config), log_(metrics_path, resumed.step, resumed.evaluated), memory_mb_(resident_mb()) {}

void RunReporter::step(const Progress& progress, const StepReport& report, double rate, double seconds,
                       double seconds_here) {
  const double speed = static_cast<double>(report.tokens) / seconds;
  speed_ = running_average(speed_, speed, 0.98);
  loss_ = running_average(loss_, report.loss, 0.95);
  if (progress.step % kMemoryEvery == 0) memory_mb_ = resident_mb();
  if (progress.step % config_.log_every == 0)
    log_.write({progress.step, "train", report.loss, rate, report.grad_norm, speed, progress.seconds, memory_mb_});
  const double per_step = seconds_here / static_cast<double>(++steps_here_);
  bar_.update({progress.step, config_.max_steps, loss_, rate, speed_,
               per_step * static_cast<double>(config_.max_steps - progress.step), memory_mb_});
}

void RunReporter::evaluation(const Progress& progress, const EvaluationSet& set, const EvaluationResult& result,
                             double rate, double seconds, bool better) {
  const double speed = static_cast<double>(set.dataset.report().target_tokens) / seconds;
  MetricsLine line{progress.step, "valid", result.loss, rate, 0, speed, progress.seconds, memory_mb_};
  std::string text = fmt::format("step {}  valid loss {:.4f}", progress.step, result.loss);
  if (config_.metric != "loss") {
    line.metric = config_.metric;
    line.metric_value = metric_of(config_, result);
    text += config_.metric == "bleu" ? fmt::format("  BLEU {:.2f}", line.metric_value)
                                     : fmt::format("  exact match {:.4f}", line.metric_value);
  }
  log_.write(line);
  bar_.print(text + fmt::format("  ({:.1f} s){}", seconds, better ? "  best so far" : ""));
  for (size_t i = 0; i < 2 && i < result.translations.size(); ++i) {
    const size_t pick = sample(progress.step, i, result.translations.size());
    bar_.print("    " + set.text.source[pick] + "\n -> " + result.translations[pick]);
  }
}

}  // namespace linnet

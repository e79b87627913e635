// Reports of a training run: metrics.jsonl, TensorBoard events, the progress bar and messages.
#pragma once
#include "base/files.h"
#include "base/log.h"
#include "config/config.h"
#include "formats/event_file.h"
#include "training/run/training_run.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/trainer.h"

namespace linnet {
struct MetricsLine;  // run_reporter.cpp

// TensorBoard events (`tensorboard = true`): the figures of metrics.jsonl as train/* and eval/*, and with every
// evaluation weights/MODULE and gradients/MODULE histograms for each module with parameters, and samples.
class EventLog {
 public:
  // `last_step`: of the checkpoint that the run resumes from; 0 for a new run.
  EventLog(const std::string& folder, int64_t last_step) : file_(folder, last_step + 1) {}

  void write(const MetricsLine& line);
  // Counts the gradient of the last step, of `step_tokens`, for write_histograms(). Call before any other plan runs.
  void count_gradient(Trainer& trainer, int shape, int64_t step_tokens, double loss_scale);
  void write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  void flush() { file_.flush(); }

 private:
  EventFile file_;
  std::map<std::string, Histogram> gradients_;  // by module
};

struct ProgressView {
  int64_t step, max_steps;
  double loss, learning_rate, speed, seconds_left;
  double memory_mb;
  const char* items;  // counted by speed: "tokens", "images"
};

// The progress display: one redrawn line on a terminal, plain lines elsewhere, nothing with LINNET_LOG=warning or off.
class ProgressBar {
 public:
  ProgressBar();
  void update(const ProgressView& view);
  void clear() { line_.clear(); }  // before another line is printed
  void print(const std::string& line);

 private:
  TerminalLine line_;
  const bool shown_;
  std::chrono::steady_clock::time_point last_;
};

// The metric that chooses the best checkpoint; larger is better.
double metric_of(const TrainConfig& config, const TaskEvaluation& result);

// An evaluation; with a moving average, both evaluations: the better and the other one.
struct Judged {
  bool average = false;  // `best` is the moving average
  TaskEvaluation best;
  std::optional<TaskEvaluation> other;
};

class RunReporter {
 public:
  // `resumed`: where the run resumes; later lines of metrics.jsonl are dropped. Events go to the same folder.
  RunReporter(const Config& config, const std::string& metrics_path, const Progress& resumed);

  // `seconds`: of this step; `seconds_here`: of all steps of this process; `skipped_steps`: so far, with a loss scale.
  void step(const Progress& progress, const StepReport& report, double rate, double seconds, double seconds_here,
      int64_t total_steps, std::optional<int64_t> skipped_steps);
  void evaluation(const Progress& progress, const Judged& judged, double rate, double seconds, bool better);
  void message(const std::string& text) { bar_.print(text); }
  // Warns at the end if every evaluation had the same answer for all examples.
  void warn_of_nothing_learned() const;
  void clear() { bar_.clear(); }
  void sync();  // flushes to disk
  // Null unless configured.
  EventLog* events() { return events_ ? &*events_ : nullptr; }

 private:
  void write(const MetricsLine& line);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  std::string figures(const TaskEvaluation& result) const;
  std::vector<std::pair<std::string_view, double>> told_metrics(const TaskEvaluation& result) const;

  const TrainConfig& config_;
  const std::span<const std::string_view> metrics_;  // that may choose the best weights
  const char* const items_;                          // what the model is trained on: "tokens", "images"
  AppendFile log_;                                   // metrics.jsonl
  std::string line_;                                 // buffer for any line of it
  std::optional<AppendFile> samples_;                // samples.jsonl, once there are samples
  std::string samples_path_;
  std::optional<EventLog> events_;
  ProgressBar bar_;
  int64_t steps_here_ = 0;
  std::string nothing_learned_;              // what the last evaluation shows, if it shows that
  bool told_apart_ = false;                  // an evaluation showed another thing
  double speed_ = 0, loss_ = 0, memory_mb_;  // speed and loss are running averages
};

// Non-finite steps: `linnet train --detect-anomaly` saves one, `linnet check RUN --replay` runs it.

// Saves the step's inputs but moments: batch, weights (unchanged by the optimizer), dropout counters.
void save_anomaly(const std::string& run_folder, const TrainingTask& task, Trainer& trainer, int shape, int64_t step);

// Runs it node by node in a task of the same configuration. Returns "step 12: first at layers.cpp:41: matmul (in
// encoder.layers.0) of f32[8, 16] from -1 to 3e+38", or that all is finite. Error(kUser) without a matching file.
std::string replay_anomaly(const std::string& run_folder, TrainingTask& task);
}  // namespace linnet

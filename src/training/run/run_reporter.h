// What a training run tells: a line of metrics.jsonl for the machine, the progress bar and messages for people.
#pragma once
#include <chrono>
#include "base/files.h"
#include "base/log.h"
#include "config/config.h"
#include "formats/event_file.h"
#include "training/run/training_task.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/trainer.h"

namespace linnet {

// What a run writes for TensorBoard (`tensorboard = true`): the figures of metrics.jsonl under the tags that its users
// know, and with every evaluation histograms of weights and gradients and the samples.
//
//   train/loss, train/learning_rate, train/grad_norm, train/tokens_per_second, train/memory_mb
//   eval/loss, eval/bleu (or what the metric is), eval/tokens_per_second
//   weights/MODULE, gradients/MODULE    for each module that has parameters of its own
//   samples
struct MetricsLine;  // run_reporter.cpp

class EventLog {
 public:
  // `last_step`: of the checkpoint that the run goes on from; 0 for a new run.
  EventLog(const std::string& folder, int64_t last_step) : file_(folder, last_step + 1) {}

  void write(const MetricsLine& line);
  // Counts the gradient of the step that the trainer ran last, which was of this shape and had so many tokens; before
  // anything else runs. It is written with the next write_histograms().
  void count_gradient(Trainer& trainer, int shape, int64_t step_tokens, double loss_scale);
  void write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  void flush() { file_.flush(); }

 private:
  EventFile file_;
  std::map<std::string, Histogram> gradients_;  // by module
};

// What a person sees while a run trains: one line that is redrawn at a terminal, a plain line now and then elsewhere.
// With LINNET_LOG=warning or off, nothing.

struct ProgressView {
  int64_t step, max_steps;
  double loss, learning_rate, speed, seconds_left;
  double memory_mb;
  const char* items;  // what speed counts, in a second: "tokens", "images"
};

class ProgressBar {
 public:
  ProgressBar();
  void update(const ProgressView& view);
  void clear() { line_.clear(); }  // removes the bar, so that a line can be printed
  // A message between updates.
  void print(const std::string& line);

 private:
  TerminalLine line_;
  const bool shown_;
  std::chrono::steady_clock::time_point last_;
};

// The figure a run's best checkpoint is chosen by; larger is better.
double metric_of(const TrainConfig& config, const Evaluation& result);

// An evaluation of a run. With a moving average, of it and of the weights: the better one and the other.
struct Judged {
  bool average = false;  // `best` is of the moving average
  Evaluation best;
  std::optional<Evaluation> other;
};

class RunReporter {
 public:
  // `resumed` is where the run goes on: lines of metrics.jsonl after it are dropped. Events go to the same folder.
  RunReporter(const Config& config, const std::string& metrics_path, const Progress& resumed);

  // `seconds` is what the step took, `seconds_here` all steps of this process. `skipped_steps`: so far, of a run with a
  // loss scale.
  void step(const Progress& progress, const StepReport& report, double rate, double seconds, double seconds_here,
            int64_t total_steps, std::optional<int64_t> skipped_steps);
  void evaluation(const Progress& progress, const Judged& judged, double rate, double seconds, bool better);
  void message(const std::string& text) { bar_.print(text); }
  // At the end of a run: warns of one that has answered the examples of every evaluation alike.
  void warn_of_nothing_learned() const;
  void clear() { bar_.clear(); }
  // What was told so far survives a crash.
  void sync();
  // Null unless the configuration asks for events.
  EventLog* events() { return events_ ? &*events_ : nullptr; }

 private:
  void write(const MetricsLine& line);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  std::string figures(const Evaluation& result) const;
  std::vector<std::pair<std::string_view, double>> told_metrics(const Evaluation& result) const;

  const TrainConfig& config_;
  const std::span<const std::string_view> metrics_;  // that may choose the best weights
  const char* const items_;                          // what the model is trained on: "tokens", "images"
  AppendFile log_;                                   // metrics.jsonl
  std::string line_;                                 // of it, with room for any
  std::optional<AppendFile> samples_;                // samples.jsonl, once there are any
  std::string samples_path_;
  std::optional<EventLog> events_;
  ProgressBar bar_;
  int64_t steps_here_ = 0;
  std::string only_answer_;                  // of the last evaluation
  bool told_apart_ = false;                  // an evaluation had several answers
  double speed_ = 0, loss_ = 0, memory_mb_;  // speed and loss are running averages
};

// A step whose loss or gradient was not finite, kept so that it can be looked at again: `linnet train --detect-anomaly`
// writes it, `linnet check RUN --replay` runs it.

// Keeps what the step's graph reads but moments: batch, weights, which the optimizer has left, dropout's counters.
void save_anomaly(const std::string& run_folder, const TrainingTask& task, Trainer& trainer, int shape, int64_t step);

// Runs it node by node in a task of the same configuration: "step 12: first at layers.cpp:41: matmul (in
// encoder.layers.0) of f32[8, 16] from -1 to 3e+38", or that it is finite now. Error(kUser) without a file that fits.
std::string replay_anomaly(const std::string& run_folder, TrainingTask& task);

}  // namespace linnet

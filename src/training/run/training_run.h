// `linnet train`: from a configuration to a run folder with a trained model.
#pragma once
#include "config/config.h"
#include "data/examples/batch.h"
#include "data/metrics/class_report.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/communicator.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/resident.h"

namespace linnet {
struct PretrainedModel;  // models/families/pretrained.h

struct TaskEvaluation {
  double loss = 0;                                      // mean over `items`
  int64_t items = 0;                                    // target tokens, or images
  std::vector<std::pair<std::string, double>> metrics;  // by names that the configuration's `metric` may have
  std::vector<std::string> samples;                     // some outputs for the inputs
  std::optional<ClassReport> classes = {};              // of classifiers

  double metric(const std::string& name) const;  // internal error if there is none
};

// A model and its data, as the training loop (training_run.cpp) sees them.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual Trainer& trainer() = 0;
  virtual const Store& store() const = 0;
  virtual const MemoryForecast& forecast() const = 0;
  // Training batches; resident() is non-null if they can be rows of a device-resident dataset.
  virtual BatchSource& batches() = 0;
  virtual ResidentSteps* resident() { return nullptr; }

  // Initial weights, from the seed or a model folder. Where ranks share the layers they are drawn, and
  // load_divided_weights() (training/run/run_checkpoints.cpp) reads them.
  virtual void initialize() { trainer().state().initialize(); }
  // The initial model folder's model; null: none.
  virtual const PretrainedModel* starts_from() const { return nullptr; }
  // Evaluates the validation examples; the result does not depend on the number of ranks.
  virtual TaskEvaluation evaluate(const SharedWork& ranks) = 0;
  // Evaluations before this one, which choose its samples: by the step, so that a resumed run has the same.
  int64_t earlier_evaluations = 0;
  // Saves what the trained model needs beside its weights: tokenizers, class names.
  virtual void save_assets(const std::string& folder) const = 0;

  void take_memory() const { store().touch(); }
};

// Reported after each step and each evaluation.
struct TrainEvent {
  int64_t step = 0, epoch = 0, total_steps = 0;
  double loss = 0, rate = 0, seconds = 0;      // of the step, or the loss of the evaluation
  const TaskEvaluation* evaluation = nullptr;  // null: after a step
};

struct TrainRequest {
  Config config;
  std::string folder;
  bool resume = false;
  std::string init;                // a run folder with initial weights; empty: none
  std::string program = "linnet";  // with its version, for system.json
  bool detect_anomaly = false;     // keep a step that is not finite (run_reporter.h)
  // Ranks that train together; rank 0 alone writes the run folder and reports (run_setup.h).
  Communicator* world = &single_process();
  std::function<bool(const TrainEvent&)> on_event = {};  // false: saves and ends the run, like a signal
  ProfileOptions profile = {};  // its folder is ignored: files go to profile/ in the run folder
};

struct TrainOutcome {
  bool stopped = false;  // by a signal, after saving
  Progress progress;
  double train_seconds = 0;  // steps and evaluations of this process
  uint64_t predicted_peak = 0;
};

// Makes the task of a configuration (make_training_task in tasks/task_table.h). `assets`: a run folder whose tokenizers
// and other assets are used; empty: made anew.
using MakeTask = std::unique_ptr<TrainingTask>(Config& config, const std::string& assets);

// Calls `afterwards` with the best weights in the state that evaluation uses.
TrainOutcome run_training(
    const TrainRequest& request, MakeTask* make_task, const std::function<void(TrainingTask&)>& afterwards = {});
}  // namespace linnet

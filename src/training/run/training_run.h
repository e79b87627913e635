// `linnet train`: from a configuration to a run folder with a trained model.
#pragma once
#include "distributed/comm/communicator.h"
#include "training/run/run_folder.h"
#include "training/run/training_task.h"
#include "training/trainer/checkpoint.h"

namespace linnet {
// Reported after each step and each evaluation.
struct TrainEvent {
  int64_t step = 0, epoch = 0, total_steps = 0;
  double loss = 0, rate = 0, seconds = 0;  // of the step, or the loss of the evaluation
  const Evaluation* evaluation = nullptr;  // null: after a step
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

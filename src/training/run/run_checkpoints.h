// Weight files of a training run. Rank 0 has the files; every rank makes the same calls, to exchange divided parts.
#pragma once
#include "config/config.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/tensor_group.h"
#include "models/families/pretrained.h"
#include "training/run/training_run.h"
#include "training/trainer/divided_states.h"

namespace linnet {
// Loads weights of another run, however either is divided.
void load_run_weights(TrainingState& states, const RunFolder& from);

class RunCheckpoints {
 public:
  // All arguments outlive it.
  RunCheckpoints(const TrainRequest& request, const RunFolder& folder, TrainingTask& task, RankGroups& groups);

  // Loads the run's checkpoint, or weights of another run or a model folder, or draws them from the seed.
  Progress load();
  // Saves the training state, and a kept model when the configuration's interval is due.
  void save(const Progress& progress);
  // Saves the run's model. `state`: "parameters", or their moving average.
  void save_best(const Progress& progress, const std::string& state);

  bool is_due(int64_t step) const;
  int64_t last_saved() const { return last_saved_; }  // the step of the last training state in the folder
  bool has_state() const;                             // rank 0's answer on rank 0, false on the others

 private:
  bool is_first_rank() const { return world_.rank() == 0; }
  bool shares_layers() const { return trainer_.state().layout().division() != nullptr; }
  bool is_divided() const { return trainer_.state().divides_moments() || shares_layers(); }
  bool load_whole(Progress& progress);
  void load_divided(bool resumed);
  void save_weights(const Progress& progress, const std::string& path, const std::string& state, const char* frozen);
  void keep(const Progress& progress);
  void save_frozen();
  // `frozen`: path to the folder with frozen weights, from the file's own folder: "" or "../".
  Metadata metadata(const Progress& progress, const char* frozen) const;

  const TrainRequest& request_;
  const TrainConfig& config_;
  const RunFolder& folder_;
  TrainingTask& task_;
  Trainer& trainer_;
  Communicator& world_;
  std::optional<WholeStates> whole_;  // where ranks divide states
  bool frozen_saved_ = false;         // this run's file is in the folder, or none is needed
  int64_t last_saved_ = 0;
};

// Averages the last `count` kept checkpoints into a new run folder. User error if there are fewer.
void average_checkpoints(const std::string& run, int64_t count, const std::string& out);
}  // namespace linnet

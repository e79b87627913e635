// The files of weights that a training run reads and writes: what it begins with, checkpoints, models. Rank 0 has the
// files. Every rank makes the same calls, as the others give and take their parts of what ranks divide.
#pragma once
#include <optional>
#include <string>

#include "distributed/comm/tensor_group.h"
#include "training/run/training_run.h"
#include "training/trainer/divided_states.h"

namespace linnet {

// The weights that another run has saved, whatever the groups of either are.
void load_run_weights(Trainer& trainer, const RunFolder& from);

class RunCheckpoints {
 public:
  // All of them outlive it.
  RunCheckpoints(const TrainRequest& request, const RunFolder& folder, TrainingTask& task, RankGroups& groups);

  // Weights, moments and progress to begin with: those of the run's checkpoint, or weights of another run, of a model
  // folder, or drawn from the seed.
  Progress load();
  // The training state, and as often as the configuration says a model beside it, which is kept.
  void save(const Progress& progress);
  // The run's model. `state`: "parameters", or their moving average.
  void save_best(const Progress& progress, const std::string& state);

  // Whether a training state is to be saved after the step.
  bool is_due(int64_t step) const;
  int64_t last_saved() const { return last_saved_; }  // the step of the last training state in the folder
  bool has_state() const;                             // rank 0's answer on rank 0, false on the others

 private:
  bool is_first_rank() const { return world_.rank() == 0; }
  bool shares_layers() const { return trainer_.layout().division() != nullptr; }
  bool is_divided() const { return trainer_.divides_moments() || shares_layers(); }
  bool load_whole(Progress& progress);
  void load_divided(bool resumed);
  void save_weights(const Progress& progress, const std::string& path, const std::string& state);
  void keep(const Progress& progress);
  Metadata metadata(const Progress& progress) const;

  const TrainRequest& request_;
  const TrainConfig& config_;
  const RunFolder& folder_;
  TrainingTask& task_;
  Trainer& trainer_;
  Communicator& world_;
  std::optional<WholeStates> whole_;  // where ranks divide states
  int64_t last_saved_ = 0;
};

}  // namespace linnet

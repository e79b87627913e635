// The files of weights that a training run reads and writes: what it begins with, checkpoints, models. Rank 0 has the
// files. Every rank makes the same calls, as the others give and take their parts of what ranks divide.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include "config/config.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/tensor_group.h"
#include "models/families/pretrained.h"
#include "training/run/training_run.h"
#include "training/run/training_task.h"
#include "training/trainer/divided_states.h"

namespace linnet {

// The weights that another run has saved, whatever the groups of either are.
void load_run_weights(TrainingState& states, const RunFolder& from);

class RunCheckpoints {
 public:
  // All of them outlive it.
  RunCheckpoints(const TrainRequest& request, const RunFolder& folder, TrainingTask& task, RankGroups& groups);

  // Weights, moments and progress to begin with: those of the run's checkpoint, or weights of another run, of a model
  // folder, or drawn from the seed.
  Progress load();
  // As often as the configuration says a model that is kept, then the training state.
  void save(const Progress& progress);
  // The run's model. `state`: "parameters", or their moving average.
  void save_best(const Progress& progress, const std::string& state);

  // Whether a training state is to be saved after the step.
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
  // `frozen`: the folder of the frozen weights as the file's own folder sees it: "", or "../".
  Metadata metadata(const Progress& progress, const char* frozen) const;

  const TrainRequest& request_;
  const TrainConfig& config_;
  const RunFolder& folder_;
  TrainingTask& task_;
  Trainer& trainer_;
  Communicator& world_;
  std::optional<WholeStates> whole_;  // where ranks divide states
  bool frozen_saved_ = false;         // the folder has this run's, or there are none
  int64_t last_saved_ = 0;
};

// Where training with quantize = "int8" begins: sets the steps of the model's linear layers
// (models/nn/quantized_training.h) to the scales that its weights, as they are now, have on the validation examples.
// (The paper's first step, 2 mean|x| / sqrt(127), is made for few bits: at 8 bits it is four times what values of a
// normal distribution want, and the short training of a finished model would not find back.)
void calibrate_steps(TrainingTask& task);

// The weights of a model folder where ranks share the layers of one model: no rank has room for all of them. Rank 0
// reads tensor after tensor and gives every rank its part; what the folder lacks is drawn from `seed`. Every rank calls
// it. `model`: on rank 0 that of the folder. Throws AgreedError where the folder cannot be read.
void load_divided_weights(Communicator& world, TrainingState& states, WholeStates& whole, const PretrainedModel* model,
                          uint64_t seed);

// The weights that a run keeps beside its best ones: checkpoints/STEP.safetensors.

struct KeptCheckpoint {
  int64_t step;
  std::string path;
};

// Those of a run folder, oldest first.
std::vector<KeptCheckpoint> kept_checkpoints(const std::string& folder);
// Where the weights of a step belong.
std::string kept_checkpoint_path(const std::string& folder, int64_t step);
// Removes all but the last `keep_checkpoints` and every step that is a multiple of `keep_every`.
void remove_old_checkpoints(const std::string& folder, const TrainConfig& config);

// The mean of the last `count` kept checkpoints as a run folder of its own, with the run's configuration and
// tokenizers. User error when there are not so many.
void average_checkpoints(const std::string& run, int64_t count, const std::string& out);

}  // namespace linnet

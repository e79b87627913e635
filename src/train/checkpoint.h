// What a run leaves on disk: a model (named weights, for inference and other programs) and a training state (weights,
// moments, moving average and where the run stands, for resuming bit for bit). Both are safetensors files, replaced in
// one step, so that a crash at any moment leaves the last good one.
#pragma once
#include <map>
#include <string>

#include "nn/model_store.h"
#include "train/divided_states.h"

namespace linnet {

constexpr int kStateFormatVersion = 1;

// Where a run stands after `step` steps.
struct Progress {
  int64_t step = 0;
  int64_t epoch = 0, batch = 0;  // the next batch to train on
  int64_t target_tokens = 0;     // trained on so far
  double seconds = 0;            // of training so far
  bool evaluated = true;         // false: stopped before this step's evaluation was done
  // The best evaluation so far; `best_step` 0: none yet.
  int64_t best_step = 0;
  double best_metric = 0, best_loss = 0;
  int64_t worse_since_best = 0;
};

using Metadata = std::map<std::string, std::string>;

// Weights by name, all as fp32.
void save_model(const std::string& path, const ParameterLayout& layout, const ParameterValues& values,
                const Metadata& metadata);
// Throws Error(kUser) naming the file and the tensor that is missing, unknown or of another shape.
Metadata load_model(const std::string& path, const ParameterLayout& layout, const ParameterTarget& target);

// `divided`: of a trainer that divides its moments, which are gathered while the file is written; the other ranks call
// give_training_state() meanwhile.
void save_training_state(const std::string& path, const Trainer& trainer, const Progress& progress,
                         const Metadata& metadata, DividedStates* divided = nullptr);
void give_training_state(const Trainer& trainer, DividedStates& divided);
// All states but the divided ones.
Progress load_training_state(const std::string& path, Trainer& trainer, Metadata* metadata = nullptr);
// Those, on every rank; `path` is read by rank 0.
void load_divided_states(const std::string& path, const Trainer& trainer, DividedStates& divided, bool is_first_rank);

// Bytes a run folder needs at most while it is replacing its files.
uint64_t checkpoint_bytes(const Trainer& trainer);

}  // namespace linnet

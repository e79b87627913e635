// Files of a run: a model (models/nn/model_file.h), and a training state from which it resumes bit for bit. Both are
// safetensors files, replaced atomically, so that a crash at any moment leaves the last good one.
#pragma once
#include "models/nn/model_file.h"
#include "training/trainer/divided_states.h"
#include "training/trainer/trainer.h"

namespace linnet {
struct Progress {
  int64_t step = 0;
  int64_t epoch = 0, batch = 0;  // the next batch to train on
  int64_t target_tokens = 0;
  double seconds = 0;
  bool evaluated = true;  // false: stopped before this step's evaluation
  // The best evaluation so far; `best_step` 0: none yet.
  int64_t best_step = 0;
  double best_metric = 0, best_loss = 0;
  int64_t worse_since_best = 0;
};

// save_model() and load_model() of divided parameters, trained ones in `state`. All ranks call; rank 0 has the file.
void save_divided_model(const std::string& path, const TrainingState& states, const std::string& state,
    const Metadata& metadata, WholeStates& whole);
void load_divided_model(const std::string& path, const TrainingState& states, WholeStates& whole);

// Metadata that name a file of frozen weights (models/nn/model_file.h) leave those out. `whole`: gathers divided states
// during writing; the other ranks call give_training_state() meanwhile.
void save_training_state(const std::string& path, const Trainer& trainer, const Progress& progress,
    const Metadata& metadata, WholeStates* whole = nullptr);
void give_training_state(const TrainingState& states, WholeStates& whole);
// Loads all but divided states.
Progress load_training_state(const std::string& path, Trainer& trainer, Metadata* metadata = nullptr);
// Loads divided states on every rank; rank 0 reads `path`.
void load_divided_states(const std::string& path, const TrainingState& states, WholeStates& whole);

// The most bytes a run folder needs while its files are replaced, without its file of frozen weights.
uint64_t checkpoint_bytes(const TrainingState& states);
}  // namespace linnet

// The weights that a run keeps beside its best ones: checkpoints/STEP.safetensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace linnet {

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

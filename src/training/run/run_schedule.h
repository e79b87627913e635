// How long a run is, and its learning rates.
#pragma once
#include <cstdint>

#include "config/config.h"
#include "training/trainer/schedule.h"

namespace linnet {

// The schedule of the configuration, without its end.
Schedule schedule_of(const Config& config);
// The step at which max_steps or max_epochs ends the training, where an epoch has so many batches; 0: it is not known.
int64_t last_step(const TrainConfig& config, int64_t batches);

}  // namespace linnet

// What a configuration says to the trainer.
#pragma once
#include "config/config.h"
#include "train/trainer.h"

namespace linnet {

int thread_count(const Config& config);
TrainerOptions trainer_options(const Config& config, bool training);

}  // namespace linnet

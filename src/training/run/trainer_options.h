// What a configuration says to the trainer.
#pragma once
#include "config/config.h"
#include "training/run/memory_report.h"
#include "training/trainer/schedule.h"
#include "training/trainer/trainer.h"

namespace linnet {

// "fp32", "tf32", "bf16", "fp16"; of "int8", what all but the products in int8 multiply in.
Precision precision_of(const std::string& name);
// "auto", "none", "attention", "block".
RecomputeMode recompute_mode(const std::string& name);
// [[train.groups]] and `freeze`; with adapters, all that is neither one of them nor a new head is frozen after those.
std::vector<ParameterGroup> parameter_groups(const Config& config);
TrainerOptions trainer_options(const Config& config, bool training);

// How long a run is, and its learning rates.

// The schedule of the configuration, without its end.
Schedule schedule_of(const Config& config);
// The step at which max_steps or max_epochs ends the training, where an epoch has so many batches; 0: it is not known.
int64_t last_step(const TrainConfig& config, int64_t batches);

}  // namespace linnet

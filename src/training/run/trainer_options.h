// Translates a configuration to trainer options and the schedule.
#pragma once
#include "config/config.h"
#include "training/run/memory_report.h"
#include "training/trainer/schedule.h"
#include "training/trainer/trainer.h"

namespace linnet {
// "fp32", "tf32", "bf16", "fp16"; for "int8", the precision of the products that stay in floating point.
Precision precision_of(const std::string& name);
RecomputeMode recompute_mode(const std::string& name);
// [[train.groups]] and `freeze`; with adapters, all but adapters and new heads is frozen too.
std::vector<ParameterGroup> parameter_groups(const Config& config);
TrainerOptions trainer_options(const Config& config, bool training);

// The schedule without its last step.
Schedule schedule_of(const Config& config);
// The last step by max_steps or max_epochs, with `batches` an epoch; 0: unknown.
int64_t last_step(const TrainConfig& config, int64_t batches);
}  // namespace linnet

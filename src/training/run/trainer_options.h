// What a configuration says to the trainer.
#pragma once
#include "config/config.h"
#include "training/run/lora_config.h"
#include "training/trainer/trainer.h"

namespace linnet {

// "fp32", "tf32", "bf16", "fp16".
Precision precision_of(const std::string& name);
// "auto", "none", "attention", "block".
RecomputeMode recompute_mode(const std::string& name);
// [[train.groups]] and `freeze`; with adapters, all that is neither one of them nor a new head is frozen after those.
std::vector<ParameterGroup> parameter_groups(const Config& config);
TrainerOptions trainer_options(const Config& config, bool training);

}  // namespace linnet

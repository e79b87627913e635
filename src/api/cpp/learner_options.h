// The options of a Learner as the trainer takes them.
#pragma once
#include <vector>

#include "linnet/learner.h"
#include "training/trainer/trainer.h"

namespace linnet {

// Throws Error(kUser) for numbers out of range and a device that there is not.
TrainerOptions trainer_options(const LearnerOptions& options);
std::vector<ParameterGroup> parameter_groups(const LearnerOptions& options);

}  // namespace linnet

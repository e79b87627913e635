// The options of a Learner as the trainer takes them.
#pragma once
#include <string>
#include <vector>

#include "linnet/learner.h"
#include "training/trainer/trainer.h"

namespace linnet {

// Throws Error(kUser) for numbers out of range and a device that there is not.
// `weights`: the store of the learner whose weights are shared; null: it has its own.
TrainerOptions trainer_options(const LearnerOptions& options, const Store* weights);
std::vector<ParameterGroup> parameter_groups(const LearnerOptions& options);
// The optimizer and the groups as text, for saved states: what moments depend on.
std::string optimizer_text(const LearnerOptions& options);
std::string groups_text(const LearnerOptions& options);

}  // namespace linnet

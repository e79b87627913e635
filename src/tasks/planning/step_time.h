// How long a training step will take, by its plan.
#pragma once
#include "tasks/planning/plan_memory.h"
#include "train/trainer.h"

namespace linnet {

// Of the shape whose step takes longest, with all its micro-batches and the update. Each node takes the longer of its
// products at 80% of the machine's speed, which large ones reach, and of its operands and results through memory.
double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed);

}  // namespace linnet

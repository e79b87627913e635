// How long a training step will take, by its plan.
#pragma once
#include "tasks/planning/plan_memory.h"
#include "training/trainer/trainer.h"

namespace linnet {

// The longer of a node's products at 80% of the machine's speed, which large ones reach, and of its operands and
// results through memory.
double estimated_node_seconds(const Graph& graph, const Node& node, const MachineSpeed& speed);

// Of the shape whose step takes longest, with all its micro-batches and the update.
double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed);

}  // namespace linnet

// What a rank computes and sends in a step, from the plans of its trainer: the bridge between plans and the simulator
// (distributed/simulate/training_step.h).
#pragma once
#include <string>
#include <vector>

#include "distributed/simulate/training_step.h"
#include "tasks/planning/plan_memory.h"
#include "training/trainer/trainer.h"

namespace linnet {

// The stages of one rank, by chunk: one without a pipeline.
struct RankStages {
  std::vector<StageWork> stages;
  int64_t micro_batches = 1;    // in a step
  bool divides_update = false;  // as TrainingStep::divides_update
};

// `trainer`: the rank's, planned with the layout. Node times are estimated.
RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout);

// The step of all ranks, from the stages of each rank of a pipeline.
TrainingStep step_of_ranks(std::vector<RankStages> ranks, const RankLayout& layout);

// Of one process, with all its micro-batches and the update.
double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed);

// How many layers of equal form the trained parameters are of ("decoder.layers.3"): a pipeline has at most so many
// stages.
int count_layers(const ParameterLayout& layout);

}  // namespace linnet

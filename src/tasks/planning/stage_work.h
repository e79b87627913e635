// What the stages of a pipeline compute and send in a step, from the plans that training would run: the exact
// counterpart of step_of() (tasks/planning/rank_work.h), which cuts the plan of a whole model.
#pragma once
#include <vector>

#include "tasks/planning/rank_work.h"

namespace linnet {

// The stages of one rank of a pipeline, by chunk. `trainer`: that rank's, with the layout's pipeline. `times`: node
// times are estimated.
struct RankStages {
  std::vector<StageWork> stages;
  ShardShare shards;
  int64_t accumulate_steps = 1;
  bool divides_update = false;
};
RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout, bool detailed);

// The step of all ranks, from those of each rank of a pipeline.
TrainingStep step_of_stages(const std::vector<RankStages>& ranks, const RankLayout& layout);

}  // namespace linnet

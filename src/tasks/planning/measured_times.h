// Node times of a rank's step, measured by steps that run here.
#pragma once
#include "config/config.h"
#include "tasks/planning/rank_work.h"

namespace linnet {

// Trains some steps as rank 0 of config.process.ranks, without the others: messages are not sent, and values that they
// would bring are 0. `ranks_here`: so many processes do it at once, as many as ranks will share this machine. `config`:
// of one shard. User error where the data or the memory for it is not there.
RankWork measured_work(const Config& config, const MachineSpeed& speed, int ranks_here);

}  // namespace linnet

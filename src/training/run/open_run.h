// What is settled before a run begins: which folder it takes, what of its configuration a resumed run keeps, and that
// its checkpoints have room.
#pragma once
#include <string>

#include "training/run/run_folder.h"
#include "training/run/training_run.h"

namespace linnet {

// Takes the folder: a new one, or one to resume whose configuration agrees. Returns where the task's assets come from;
// empty: they are made. User error for a folder that cannot be taken.
std::string open_folder(TrainRequest& request, RunFolder& folder);

// From here on the number of shards is a number, which stays that of the run on any number of ranks.
void divide_into_shards(Config& config);

// User error when the disk has no room for the checkpoints.
void check_space(const RunFolder& folder, const Trainer& trainer);

}  // namespace linnet

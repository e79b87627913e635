// The weights of a model folder where ranks share the layers of one model (tensor and pipeline parallel): no rank has
// room for all of them.
#pragma once
#include "distributed/comm/communicator.h"
#include "models/families/pretrained.h"
#include "training/trainer/divided_states.h"

namespace linnet {

// Rank 0 reads tensor after tensor and gives every rank its part; what the folder lacks is drawn from `seed`. Every
// rank calls it. `model`: on rank 0 that of the folder, on the others not looked at. Throws AgreedError where the
// folder cannot be read.
void load_divided_weights(Communicator& world, Trainer& trainer, WholeStates& whole, const PretrainedModel* model,
                          uint64_t seed);

}  // namespace linnet

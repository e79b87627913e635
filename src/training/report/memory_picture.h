// The data of a picture of a plan's memory: every tensor with its place in the arena and its life.
#pragma once
#include <string>

#include "training/trainer/trainer.h"

namespace linnet {

// Of the plan with the largest arena among those the trainer trains with, or evaluates with if it does not train:
// {"name", "arena_bytes", "nodes": [[op, phase, module, source]...], "live": [bytes...],
//  "tenants": [[type, offset, bytes, first node, last node]...]}
std::string memory_picture(const Trainer& trainer, RegionId arena);

}  // namespace linnet

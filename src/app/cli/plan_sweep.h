// `linnet plan CONFIG --sweep`: memory and estimated time of a step for every precision, recomputation, optimizer and,
// from a model folder, with and without adapters.
#pragma once
#include "config/config.h"

namespace linnet {

// Prints the table, a line as soon as it is planned. `memory`: what is there; lines that take more are marked.
void print_plan_sweep(const Config& config, uint64_t memory);

}  // namespace linnet

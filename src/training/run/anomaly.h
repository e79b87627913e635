// A step whose loss or gradient was not finite, kept so that it can be looked at again: `linnet train --detect-anomaly`
// writes it, `linnet check RUN --replay` runs it.
#pragma once
#include <string>

#include "training/run/training_task.h"

namespace linnet {

std::string anomaly_path(const std::string& run_folder);

// Everything that the step's graph reads, moments left out: batch, weights, dropout's counters. The optimizer has left
// the weights as they were.
void save_anomaly(const std::string& run_folder, const TrainingTask& task, Trainer& trainer, int shape, int64_t step);

// Puts it into the memory of a task of the same configuration and runs it node by node: "step 12: first at
// layers.cpp:41: matmul (in encoder.layers.0) of f32[8, 16] from -1 to 3e+38", or that it is finite now. Throws
// Error(kUser) when there is no such file or it is of another model.
std::string replay_anomaly(const std::string& run_folder, TrainingTask& task);

}  // namespace linnet

// Where training with quantize = "int8" begins.
#pragma once
#include "training/run/training_task.h"

namespace linnet {

// Sets the steps of the model's linear layers (models/nn/quantized_training.h) to the scales that its weights, as they are
// now, have on the validation examples: evaluates the task once.
//
// (The first step of the paper, 2 mean|x| / sqrt(127), is made for few bits: at 8 bits it is four times what values
// of a normal distribution want, and the short training of a finished model would not find back.)
void calibrate_steps(TrainingTask& task);

}  // namespace linnet

// What a stage of a pipeline has, in words.
#pragma once
#include <string>

#include "nn/parameter_layout.h"

namespace linnet {

// "stage 0: encoder.layers.0 to encoder.layers.2, 48% of the work", by the blocks of its parameters; of a stage without
// blocks "embeddings" or "output layer". Empty for a layout of all stages.
std::string stage_text(const ParameterLayout& layout);

}  // namespace linnet

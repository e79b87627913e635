// What a stage of a pipeline has, in words.
#pragma once
#include <string>
#include "models/nn/parameter_layout.h"

namespace linnet {

// "stage 0: encoder.layers.0 to encoder.layers.2, 48% of the work", by the blocks of its parameters; of a stage without
// blocks "embeddings" or "output layer". Of a rank with several stages "stages 0 and 2: layers.0; layers.4 to layers.5,
// 48% of the work". Empty for a layout of all stages.
std::string stage_text(const ParameterLayout& layout);

}  // namespace linnet

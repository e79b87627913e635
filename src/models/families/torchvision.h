// Residual networks in files of torchvision's layout: a safetensors file with the names of its state dictionary
// (conv1.weight, layer1.0.bn1.running_mean, ..., fc.bias) and filters as [O, C, R, S].
#pragma once
#include <string>

#include "models/nn/parameter_layout.h"

namespace linnet {

// Fills `parameters` [layout.parameter_count()], running statistics included. num_batches_tracked is not read. User
// error of one line where a tensor is missing, is left over, or has another shape than the model's.
void load_torchvision(const std::string& file, const ParameterLayout& layout, float* parameters);
// The other direction; num_batches_tracked is not written, which torchvision's load_state_dict(strict=False) allows.
void save_torchvision(const std::string& file, const ParameterLayout& layout, const float* parameters);

}  // namespace linnet

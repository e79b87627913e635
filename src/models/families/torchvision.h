// Residual networks in torchvision's layout: a safetensors file with its state dictionary's names (conv1.weight,
// layer1.0.bn1.running_mean, ..., fc.bias) and filters [O, C, R, S].
#pragma once
#include "models/nn/parameter_layout.h"

namespace linnet {
// What a file, or the files beside it, say of its network.
struct TorchvisionNetwork {
  std::string file;
  int64_t depth = 0, channels = 3, classes = 0;
  std::vector<std::string> class_names = {};  // of an export; empty: not known
  std::vector<double> mean, deviation;        // of an export (images.json) or of timm (config.json), else ImageNet's
};
// Whether it is a safetensors file, or a folder with model.safetensors that is no model folder of transformers.
bool is_torchvision_path(const std::string& path);
// User error if models/modules/resnet.h has no such network.
TorchvisionNetwork describe_torchvision(const std::string& path);

// Fills `parameters` of `layout`, with running statistics. `new_head` draws the last layer from `seed`. A model of one
// channel takes the sum of three. User error of one line for a tensor that is missing, extra or of another shape.
void load_torchvision(const std::string& file, const ParameterLayout& layout, const ParameterTarget& parameters,
    bool new_head = false, uint64_t seed = 1);
// The inverse, without num_batches_tracked, which torchvision's load_state_dict(strict=False) allows.
void save_torchvision(const std::string& file, const ParameterLayout& layout, const float* parameters);
}  // namespace linnet

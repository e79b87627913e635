// Residual networks in files of torchvision's layout: a safetensors file with the names of its state dictionary
// (conv1.weight, layer1.0.bn1.running_mean, ..., fc.bias) and filters as [O, C, R, S].
#pragma once
#include <string>
#include <vector>
#include "models/nn/parameter_layout.h"

namespace linnet {

// What a file says of its network, or the files beside it.
struct TorchvisionNetwork {
  std::string file;
  int64_t depth = 0, channels = 3, classes = 0;
  std::vector<std::string> class_names = {};  // of an export; empty: not known
  std::vector<double> mean, deviation;        // of an export (images.json) or of timm (config.json), else ImageNet's
};
// Whether this is a file of safetensors, or a folder that has one as model.safetensors and is no model folder of
// Hugging Face's transformers.
bool is_torchvision_path(const std::string& path);
// User error for a network that is none of those in models/modules/resnet.h.
TorchvisionNetwork describe_torchvision(const std::string& path);

// Fills `parameters` of `layout`, running statistics included. num_batches_tracked is not read. With `new_head` the
// last layer is drawn from `seed`. A model of one channel takes the sum of three. User error of one line where a tensor
// is missing, is left over, or has another shape than the model's.
void load_torchvision(const std::string& file, const ParameterLayout& layout, const ParameterTarget& parameters,
                      bool new_head = false, uint64_t seed = 1);
// The other direction; num_batches_tracked is not written, which torchvision's load_state_dict(strict=False) allows.
void save_torchvision(const std::string& file, const ParameterLayout& layout, const float* parameters);

}  // namespace linnet

// The weights of a model by name, as a run folder keeps them: a safetensors file.
#pragma once
#include <map>
#include <string>
#include "formats/safetensors.h"
#include "models/nn/model_store.h"

namespace linnet {

using Metadata = std::map<std::string, std::string>;

// Writes weights as fp32, and replaces the file in one step. Metadata that name a file of frozen weights
// (models/nn/frozen_weights.h) leave those out.
void save_model(const std::string& path, const ParameterLayout& layout, const ParameterValues& values,
                const Metadata& metadata);
// Throws Error(kUser) naming the file and the tensor that is missing, unknown or of another shape. `path` may be a file
// of a packed model.
Metadata load_model(const std::string& path, const ParameterLayout& layout, const ParameterTarget& target);

// The data of a tensor, which may be unaligned. Throws Error(kUser) when it is missing or of another type.
const std::byte* tensor_data(const SafetensorsFile& file, const std::string& name, const TensorType& expected);
// Copies those data to `to`; the same errors.
void copy_tensor(const SafetensorsFile& file, const std::string& name, const TensorType& expected, void* to);
// The parameters `slots`, whose names in the file begin with `prefix`.
void copy_tensors(const SafetensorsFile& file, std::span<const ParameterSlot> slots, const std::string& prefix,
                  const ParameterTarget& target);

}  // namespace linnet

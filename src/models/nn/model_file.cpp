#include "models/nn/model_file.h"
#include <cstring>
#include "base/error.h"
#include "models/nn/frozen_weights.h"
#include "models/nn/parameter_file.h"
#include "models/nn/quantized_training.h"

namespace linnet {

const std::byte* tensor_data(const SafetensorsFile& file, const std::string& name, const TensorType& expected) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.type != expected)
    fail_user(file.path() + ": tensor " + entry.name + " is " + entry.type.text() + ", expected " + expected.text());
  return entry.data;
}

void copy_tensor(const SafetensorsFile& file, const std::string& name, const TensorType& expected, void* to) {
  std::memcpy(to, tensor_data(file, name, expected), expected.bytes());
  file.drop_pages();
}

void copy_tensors(const SafetensorsFile& file, std::span<const ParameterSlot> slots, const std::string& prefix,
                  const ParameterTarget& target) {
  for (const ParameterSlot& slot : slots) {
    // A model that was trained in fp32 has no steps: they keep the values they have.
    if (!weight_of_input_step(slot.spec.name).empty() && !file.find(prefix + slot.spec.name)) continue;
    copy_tensor(file, prefix + slot.spec.name, {DType::kF32, slot.spec.shape}, target.flat + slot.offset);
    target.finish(slot);
  }
}

Metadata load_model(const std::string& path, const ParameterLayout& layout, const ParameterTarget& target) {
  if (const auto packed = ParameterFile::open(split_packed_path(path).packed)) {
    packed->read(layout, target);
    return packed->metadata();
  }
  const SafetensorsFile file(path);
  file.check_data();
  const auto frozen = FrozenWeights::beside(file);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (!frozen || !frozen->has(slot.spec.name)) {
      copy_tensors(file, {&slot, 1}, "", target);
      continue;
    }
    frozen->read(slot, target.flat + slot.offset);
    target.finish(slot);
  }
  if (file.entries().size() != layout.parameters().size())
    for (const SafetensorsEntry& entry : file.entries()) {
      bool known = false;
      for (const ParameterSlot& slot : layout.parameters()) known = known || slot.spec.name == entry.name;
      known = known || !weight_of_input_step(entry.name).empty();  // scales of static int8, read by who needs them
      if (!known) fail_user(path + ": tensor " + entry.name + " is not part of the model");
    }
  return file.metadata();
}

}  // namespace linnet

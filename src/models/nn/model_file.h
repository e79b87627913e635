// The weights of a model by name in a safetensors file of a run folder.
#pragma once
#include "formats/safetensors.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
using Metadata = std::map<std::string, std::string>;

// Writes weights as fp32, without the frozen ones that the metadata name (below), and replaces the file in one step.
void save_model(
    const std::string& path, const ParameterLayout& layout, const ParameterValues& values, const Metadata& metadata);
// Reads a packed model's file too. Throws Error(kUser) for a tensor that is missing, unknown or of another shape.
Metadata load_model(const std::string& path, const ParameterLayout& layout, const ParameterTarget& target);

// The tensor's data, which may be unaligned. Throws Error(kUser) if it is missing or of another type.
const std::byte* tensor_data(const SafetensorsFile& file, const std::string& name, const TensorType& expected);
// Copies them; the same errors.
void copy_tensor(const SafetensorsFile& file, const std::string& name, const TensorType& expected, void* to);
// Copies `slots`, whose names in the file begin with `prefix`.
void copy_tensors(const SafetensorsFile& file, std::span<const ParameterSlot> slots, const std::string& prefix,
    const ParameterTarget& target);

// The packed weights that training leaves unchanged: those with adapters (lora.base_storage), and frozen groups with a
// storage of their own. They are as large as the model, so a run folder has them once, in a file that its models and
// training states name in their metadata ("frozen", a path relative to their own folder):
//
//   NAME          U8: the weight as graphs read it (engine/kernels/quantized/packed_weight.h)
//   __metadata__  NAME: "FORMAT ROWS COLUMNS TAIL_FORMAT TAIL_ROWS", the fields of PackedShape
constexpr const char *kFrozenKey = "frozen", *kFrozenFile = "frozen.safetensors";

std::vector<const QuantizedSlot*> frozen_packed(const ParameterLayout& layout);

void save_frozen_weights(
    const std::string& path, const Store& store, const ParameterLayout& layout, SafetensorsMetadata metadata);

class FrozenWeights {
 public:
  enum class Check { kData, kShapes };
  // The file that the metadata of `file` name; null if none. User error if it is missing or damaged.
  static std::unique_ptr<const FrozenWeights> beside(const SafetensorsFile& file, Check check = Check::kData);

  int64_t parameter_count() const;  // numbers that all weights stand for
  bool has(const std::string& parameter) const { return file_.find(parameter) != nullptr; }
  // The values of the weight. User error for another shape.
  void read(const ParameterSlot& slot, float* values) const;
  // The packed bytes. User error for another form.
  void copy(const QuantizedSlot& slot, std::byte* to) const;

 private:
  explicit FrozenWeights(const std::string& path) : file_(path) {}
  PackedShape shape(const std::string& parameter) const;

  const SafetensorsFile file_;
};
}  // namespace linnet

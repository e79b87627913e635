// The weights of a model by name, as a run folder keeps them: a safetensors file.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "formats/safetensors.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

using Metadata = std::map<std::string, std::string>;

// Writes weights as fp32, and replaces the file in one step. Metadata that name a file of frozen weights
// (models/nn/model_file.h) leave those out.
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

// The packed weights of a run that training leaves as they are: those beside which adapters are trained
// (lora.base_storage), and frozen groups with a storage of their own. They are as large as the model and never change,
// so a run folder has them once, in a file that its models and training states name in their metadata ("frozen", a path
// from their own folder):
//
//   NAME          U8: the weight as graphs read it (engine/kernels/quantized/packed_weight.h)
//   __metadata__  NAME: "FORMAT ROWS COLUMNS TAIL_FORMAT TAIL_ROWS", the fields of PackedShape
constexpr const char *kFrozenKey = "frozen", *kFrozenFile = "frozen.safetensors";

std::vector<const QuantizedSlot*> frozen_packed(const ParameterLayout& layout);

void save_frozen_weights(const std::string& path, const Store& store, const ParameterLayout& layout,
                         SafetensorsMetadata metadata);

class FrozenWeights {
 public:
  enum class Check { kData, kShapes };
  // Of the file that the metadata of `file` name; null: they name none. User error when it is missing or damaged.
  static std::unique_ptr<const FrozenWeights> beside(const SafetensorsFile& file, Check check = Check::kData);

  int64_t parameter_count() const;  // numbers that all weights stand for
  bool has(const std::string& parameter) const { return file_.find(parameter) != nullptr; }
  // The numbers that the weight stands for. User error where its shape is another one.
  void read(const ParameterSlot& slot, float* values) const;
  // The packed bytes. User error where they are of another form.
  void copy(const QuantizedSlot& slot, std::byte* to) const;

 private:
  explicit FrozenWeights(const std::string& path) : file_(path) {}
  PackedShape shape(const std::string& parameter) const;

  const SafetensorsFile file_;
};

}  // namespace linnet

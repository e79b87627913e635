// `linnet pack`: a run or model folder as one file (formats/packed_model.h).
#pragma once
#include "models/families/pretrained.h"
#include "models/nn/parameter_file.h"

namespace linnet {
struct PackReport {
  size_t files = 0, tensors = 0;
  uint64_t bytes = 0;   // of the packed file
  std::string weights;  // "int8, 50 of 148 parameters; others F32"
};
// User error without a model, or for quantized weights if it answers no texts. Reads the file back to check it.
PackReport pack_model(const std::string& folder, const std::string& path, const QuantizationWords& words = {});

// The same for a caller's model that answers texts. `load` fills a flat buffer with its parameters.
struct ModelToPack {
  const Module& module;
  std::function<void(const ParameterLayout&, const ParameterTarget&)> load;
  const PretrainedModel* pretrained = nullptr;  // has the model folder's weight types; null: fp32
};
PackReport pack_model(
    const std::string& folder, const std::string& path, const QuantizationWords& words, const ModelToPack& model);
}  // namespace linnet

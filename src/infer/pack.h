// `linnet pack`: a run or a model folder as one file (io/packed_model.h).
#pragma once
#include <string>

#include "nn/parameter_file.h"

namespace linnet {

struct PackReport {
  size_t files = 0, parameters = 0;
  uint64_t bytes = 0;   // of the packed file
  std::string weights;  // "int8, 50 of 148 parameters; others F32"
};
// User error for a folder that holds no model, and for quantized weights of a model that is not asked texts. What has
// been written is read back and checked.
PackReport pack_model(const std::string& folder, const std::string& path, const QuantizationWords& words = {});

}  // namespace linnet

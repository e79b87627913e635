// `linnet quantize`: static int8 with activation scales measured on examples.
#pragma once
#include "models/families/static_scales.h"
#include "models/nn/activation_observer.h"

namespace linnet {
struct CalibrationRequest {
  std::string model;     // a run or a model folder
  std::string examples;  // a file with one per line; for images a folder or a file of paths
  CalibrationMethod method = CalibrationMethod::kMinMax;
  int64_t most = 512;  // most examples to read
  std::vector<std::string> keep = {};
  int64_t threads = 0;
};

// Runs the model in fp32. User error for a quantized model, fewer than kFewestExamples, or unreadable examples.
constexpr int64_t kFewestExamples = 8;
StaticScales calibrate(const CalibrationRequest& request);

// Writes the model with scales, without training records, to `out`: a new or empty folder, or the model's own.
void save_quantized(const std::string& model, const StaticScales& scales, const std::string& out);
}  // namespace linnet

// `linnet quantize`: a model in static int8, whose products round what they read by scales that examples have shown.
#pragma once
#include <string>
#include <vector>
#include "models/families/static_scales.h"
#include "models/nn/activation_observer.h"

namespace linnet {

struct CalibrationRequest {
  std::string model;  // a run or a model folder
  std::string
      examples;  // a file with one on each line, as the model reads them; of images, a folder or a file of paths
  CalibrationMethod method = CalibrationMethod::kMinMax;
  int64_t most = 512;  // examples that are read
  std::vector<std::string> keep = {};
  int64_t threads = 0;
};

// Runs the model in fp32 on the examples. User error for a model that is quantized already, for fewer than kFewest
// examples, and for examples that it cannot read.
constexpr int64_t kFewestExamples = 8;
StaticScales calibrate(const CalibrationRequest& request);

// Writes the model with its scales as folder `out`, which must not exist or be empty, or be the model's own folder,
// to which the scales are added. What only tells of a training run is left out.
void save_quantized(const std::string& model, const StaticScales& scales, const std::string& out);

}  // namespace linnet

// The scales of static int8 of a model folder or run: `linnet quantize` writes them as quantization.json, training with
// quantize = "int8" among the weights ("LAYER.input_step").
//
//   {"format": "linnet static int8", "version": 1, "method": "percentile", "examples": 512, "keep": [],
//    "input_scales": {"bert.layers.0.self_attn.in_proj.weight": 0.031, ...}}
#pragma once
#include "models/nn/weight_quantization.h"

namespace linnet {
struct StaticScales {
  std::string method;                              // of calibration; "training" where they were trained
  int64_t examples = 0;                            // that the model was calibrated on
  std::vector<std::string> keep = {};              // patterns of parameters that stay in fp32
  std::map<std::string, float> input_scales = {};  // by weight: scale of what its layer reads; above 0
};

// Empty if the folder (or packed model) has none. User error for a damaged file or a newer version.
std::optional<StaticScales> read_static_scales(const std::string& folder);
constexpr const char* kStaticScalesFile = "quantization.json";
std::string static_scales_file(const StaticScales& scales);  // its contents
void write_static_scales(const std::string& folder, const StaticScales& scales);

// How to run the model in `folder`: as it was packed; else by `word` and `keep`, those of --quantize and --keep. No
// word or "static": static int8 if the folder has scales; without them "static" is a user error. Without a word, files
// of llama.cpp keep their blocks. Other words: parse_quantization(). User error for 8 and 4 bits of ONNX networks.
WeightQuantization folder_quantization(
    const std::string& folder, const std::string& word, const std::vector<std::string>& keep = {});
}  // namespace linnet

// The scales of static int8 that belong to a model folder or run: `linnet quantize` writes them beside the weights as
// quantization.json, training with quantize = "int8" leaves them among the weights ("LAYER.input_step").
//
//   {"format": "linnet static int8", "version": 1, "method": "percentile", "examples": 512, "keep": [],
//    "input_scales": {"bert.layers.0.self_attn.in_proj.weight": 0.031, ...}}
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "models/nn/weight_quantization.h"

namespace linnet {

constexpr const char* kStaticScalesFile = "quantization.json";

struct StaticScales {
  std::string method;                              // of calibration; "training" where they were trained
  int64_t examples = 0;                            // that the model was calibrated on
  std::vector<std::string> keep = {};              // patterns of parameters that stay in fp32
  std::map<std::string, float> input_scales = {};  // by weight: scale of what its layer reads; above 0
};

// Empty where the folder (or packed model) has none. User error for a file that is damaged or of a newer version.
std::optional<StaticScales> read_static_scales(const std::string& folder);
void write_static_scales(const std::string& folder, const StaticScales& scales);

// How to run the model in `folder`: as it was packed with, if it was. Else `word` and `keep` are --quantize and --keep.
// Without a word, or with "static", in static int8 where the folder has scales; "static" is a user error where it has
// none. Without a word a file of llama.cpp keeps its blocks. Other words: as parse_quantization() says. On another
// device than the CPU there is no int8 and there are no blocks: no word means fp32 there.
WeightQuantization folder_quantization(const std::string& folder, const std::string& word,
                                       const std::vector<std::string>& keep = {}, const std::string& device = "cpu");

}  // namespace linnet

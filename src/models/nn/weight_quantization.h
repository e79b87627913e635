// Which weights are kept in fewer bits for inference, and how (engine/kernels/quantized/packed_weight.h).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {
class ActivationObserver;
struct ParameterSpec;

struct WeightQuantization {
  std::optional<WeightFormat> linear = {};  // of linear layers; empty: fp32
  std::optional<WeightFormat> table = {};   // of embeddings, and of heads that share their weight
  // Parameters that the model's file has in blocks; they stay as they are.
  std::map<std::string, PackedShape> blocks = {};
  // Parameters that stay in fp32, as patterns of names ('*' stands for any characters).
  std::vector<std::string> keep = {};
  // Static int8: by weight, the scale by which its products round their other operand (static_rounding() in
  // ops/quantized). Products of other weights take a scale from each row.
  std::map<std::string, float> input_scales = {};
  std::shared_ptr<ActivationObserver> observer = {};  // if set, evaluations show it what the linear layers read

  bool any() const { return linear || table || !blocks.empty(); }
  bool operator==(const WeightQuantization&) const = default;
  // Empty: in fp32, as are adapters, experts and all but matrices of at least 16 rows of 32 numbers.
  std::optional<PackedShape> choose(const ParameterSpec& spec) const;
};

// The words of --quantize: "none"; "int8": linear layers and tables, and products round activations to 8 bits too;
// "int8-weights": blocks of 8 bits; "int4-weights": blocks of 4 bits, tables in blocks of 8. User error for others.
WeightQuantization parse_quantization(const std::string& word, const std::vector<std::string>& keep = {});
const std::vector<std::string>& quantization_words();

// "fc.weight" for "fc.input_step"; empty for other names.
std::string weight_of_input_step(const std::string& parameter);
}  // namespace linnet

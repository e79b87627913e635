#include "models/nn/weight_quantization.h"
#include "base/fail.h"
#include "base/text.h"
#include "models/nn/module.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
std::optional<PackedShape> WeightQuantization::choose(const ParameterSpec& spec) const {
  const PackedShape* in_file = find_value(blocks, spec.name);
  if (in_file && in_file->rows != spec.shape[0]) return {};  // adapters have it, for another number of tokens
  const std::optional<WeightFormat> format = in_file ? in_file->format : spec.table ? table : linear;
  if (!format || !spec.trainable || spec.shape.rank() == 0) return {};
  const PackedShape shape{*format, spec.shape[0], spec.shape.elements(1, spec.shape.rank())};
  // Filters [O, R, S, C] of square windows. ONNX has them in another order.
  const bool are_filters = spec.shape.rank() == 4 && spec.shape[1] == spec.shape[2] && *format == WeightFormat::kInt8;
  if (spec.shape.rank() != 2 && !are_filters) return {};
  if (shape.rows < PackedShape::kPanel || shape.columns < PackedShape::kBlock ||
      shape.columns > PackedShape::kMostColumns)
    return {};
  // Products of adapters and of experts have no kernel for these formats.
  if (matches_any(spec.name, {"*.lora_A.*", "*.lora_B.*", "*.experts.*"}) || matches_any(spec.name, keep)) return {};
  return in_file ? *in_file : shape;
}

const std::vector<std::string>& quantization_words() {
  static const std::vector<std::string> words{"none", "bf16", "int8", "int8-weights", "int4-weights"};
  return words;
}

WeightQuantization parse_quantization(const std::string& word, const std::vector<std::string>& keep) {
  using enum WeightFormat;
  if (word == "none" || word.empty()) return {.keep = keep};
  if (word == "bf16") return {.linear = kBf16, .table = kBf16, .keep = keep};
  if (word == "int8") return {.linear = kInt8, .table = kInt8, .keep = keep};
  if (word == "int8-weights") return {.linear = kInt8Blocks, .table = kInt8Blocks, .keep = keep};
  if (word == "int4-weights") return {.linear = kInt4Blocks, .table = kInt8Blocks, .keep = keep};
  fail_user("\"", word, "\" is no way to quantize; there are ", joined(quantization_words()));
}

std::string weight_of_input_step(const std::string& parameter) {
  constexpr std::string_view kEnding = ".input_step";
  if (!parameter.ends_with(kEnding)) return {};
  return parameter.substr(0, parameter.size() - kEnding.size()) + ".weight";
}
}  // namespace linnet

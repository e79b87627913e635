#include "models/nn/quantized_training.h"
#include <string_view>
#include "models/nn/layers.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
int64_t train_quantized(Module& model) {
  constexpr float kUntilCalibrated = 0.05F;
  const WeightQuantization int8 = parse_quantization("int8");
  int64_t count = 0;
  model.visit([&](Module& module) {
    auto* layer = dynamic_cast<QuantizedTrainingLayer*>(&module);
    if (layer && !layer->is_trained_quantized() && int8.choose(layer->quantized_weight())) {
      layer->train_quantized(kUntilCalibrated);
      ++count;
    }
    auto* linear = dynamic_cast<Linear*>(&module);
    if (!linear || linear->input_step || !int8.choose(linear->weight.spec())) return;
    linear->train_quantized(kUntilCalibrated);
    ++count;
  });
  return count;
}

std::string weight_of_input_step(const std::string& parameter) {
  constexpr std::string_view kEnding = ".input_step";
  if (!parameter.ends_with(kEnding)) return {};
  return parameter.substr(0, parameter.size() - kEnding.size()) + ".weight";
}
}  // namespace linnet

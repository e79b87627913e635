// Quantization-aware training for static int8: linear layers round weights and inputs as the finished model will
// (ops/fake_quantize). The step of each input is a parameter, "LAYER.input_step" [1], the layer's scale in static int8.
// Weights are rounded by the quantizer that packs them (engine/kernels/quantized/packed_weight.h), without steps.
#pragma once
#include <string>
#include "models/nn/module.h"

namespace linnet {
// A layer besides Linear that can train so: a convolution.
struct QuantizedTrainingLayer {
  virtual ~QuantizedTrainingLayer() = default;
  virtual const ParameterSpec& quantized_weight() const = 0;
  virtual bool is_trained_quantized() const = 0;
  virtual void train_quantized(float step) = 0;  // as Linear's
};

// Adds a step to each layer that `int8` quantizes. Returns their number.
int64_t train_quantized(Module& model);

// "fc.weight" for "fc.input_step"; empty for other names.
std::string weight_of_input_step(const std::string& parameter);
}  // namespace linnet

// Training with the rounding errors of static int8 (quantization-aware training): linear layers compute with weights
// and inputs that are rounded as the finished model will round them (ops/fake_quantize). The step of each input is a
// parameter, "LAYER.input_step" [1], which is the layer's scale in static int8; weights are rounded by the
// quantizer that packs them (engine/kernels/quantized/packed_weight.h), so they have no steps to learn.
#pragma once
#include <string>
#include "models/nn/module.h"

namespace linnet {

// A layer besides Linear that computes so: a convolution.
struct QuantizedTrainingLayer {
  virtual ~QuantizedTrainingLayer() = default;
  virtual const ParameterSpec& quantized_weight() const = 0;
  virtual bool is_trained_quantized() const = 0;
  // As Linear::train_quantized().
  virtual void train_quantized(float step) = 0;
};

// Gives each layer that `int8` quantizes a step. Returns how many there are.
int64_t train_quantized(Module& model);

// "fc.weight" for "fc.input_step"; empty for other names.
std::string weight_of_input_step(const std::string& parameter);

}  // namespace linnet

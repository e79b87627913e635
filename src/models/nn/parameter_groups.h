// Parameters that are trained alike, chosen by their names: frozen ones, and those with a learning rate, a weight decay
// or an optimizer of their own.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {

struct ParameterGroup {
  // Of full names ("encoder.layers.0.linear1.weight"); '*' stands for any characters. A parameter belongs to the first
  // group that has a pattern for it; those without one are trained as the trainer's options say.
  std::vector<std::string> patterns = {};
  // Not trained: no gradient, no moments, no moving average, and the backward pass does not go through what only frozen
  // parameters need.
  bool frozen = false;
  // How the group's matrices lie in memory; empty: in fp32, as everything else does. Of a trained group kBf16 alone:
  // updates compute in fp32 and are rounded stochastically (engine/ops/quantized/quantized.h). Never kInt8, whose
  // products would round activations.
  std::optional<WeightFormat> storage = {};
  double rate_factor = 1;                        // of the learning rate
  std::optional<double> weight_decay = {};       // empty: the trainer's
  std::optional<OptimizerAttrs> optimizer = {};  // kind and its numbers; empty: the trainer's
};

bool matches(std::string_view name, std::string_view pattern);

}  // namespace linnet

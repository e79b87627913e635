#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "models/modules/losses.h"

namespace linnet {
namespace {
// Each row counts by the weight of its class, whatever the label smoothing; rows without a label do not.
TEST(ClassWeights, MultiplyTheLossesOfTheirRows) {
  const std::vector<double> logits{1, 2, 0.5, -1, 0, 3, 2, 2, 1, 0, 0, 0}, weights{2, 0.5, 1};
  const std::vector<int32_t> labels{2, 0, 1, -1};
  for (const double smoothing : {0.0, 0.1}) {
    Trace trace({.dtype = DType::kF64, .training = true});
    trace.graph().output(
        "loss", weighted_cross_entropy_sum(trace.input("logits", {DType::kF64, {4, 3}}),
                    trace.input("labels", {DType::kI32, {4}}), smoothing, trace.input("weights", {DType::kF64, {3}})));
    NamedTensors inputs;
    const auto fill = [&](const char* name, const TensorType& type, const auto& values) {
      HostTensor tensor(type);
      std::ranges::copy(values, tensor.as<typename std::decay_t<decltype(values)>::value_type>().begin());
      inputs[name] = std::move(tensor);
    };
    fill("logits", {DType::kF64, {4, 3}}, logits);
    fill("labels", {DType::kI32, {4}}, labels);
    fill("weights", {DType::kF64, {3}}, weights);
    double expected = 0;
    for (size_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += std::exp(logits[3 * row + k]);
      for (size_t k = 0; k < 3; ++k) {
        const double share = (static_cast<int32_t>(k) == labels[row] ? 1 - smoothing : 0) + smoothing / 3;
        expected += weights[k] * share * (std::log(sum) - logits[3 * row + k]);
      }
    }
    EXPECT_NEAR(interpret(trace.finish(), inputs).outputs.at("loss").values()[0], expected, 1e-12);
  }
}
}  // namespace
}  // namespace linnet

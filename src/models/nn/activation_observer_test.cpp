#include "models/nn/activation_observer.h"
#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/movement/movement.h"
#include "models/nn/forward.h"
#include "models/nn/layers.h"
#include "models/nn/model_store.h"

namespace linnet {
namespace {
struct Net : Module {
  Net() : first{this, "first", 64, 48}, second{this, "second", 48, 32} {}
  Tensor operator()(Tensor x) { return second(relu(first(x))); }
  Linear first, second;
};

constexpr int64_t kRows = 2, kLength = 5;

std::unique_ptr<Forward> open(Net& net, const WeightQuantization& quantization) {
  const Forward::Function function = [&](Trace& trace) {
    trace.input("lengths", {DType::kI32, {kRows}});
    trace.graph().output("y", net(trace.input("x", {DType::kF32, {kRows, kLength, 64}})));
  };
  auto forward =
      std::make_unique<Forward>(net, std::vector{function}, ForwardOptions{.threads = 1, .quantization = quantization});
  forward->load([&](const ParameterTarget& parameters) {
    for (const ParameterSlot& slot : forward->layout().parameters())  // by name: the order differs
      initialize(slot.spec, 1, parameters.flat + slot.offset);
  });
  return forward;
}

std::vector<float> inputs() {
  std::vector<float> x(kRows * kLength * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 0.37F);
  return x;
}

std::vector<float> run(const std::unique_ptr<Forward>& forward, const std::vector<float>& x) {
  forward->set("x", x);
  forward->set("lengths", std::vector<int32_t>{5, 3});
  const auto y = forward->run().output("y");
  return {y.begin(), y.end()};
}

TEST(ActivationObserver, SeesWhatLayersReadAndNoPadding) {
  Net net;
  const auto observer = std::make_shared<ActivationObserver>();
  const auto forward = open(net, {.observer = observer});
  std::vector<float> x = inputs();
  x[3] = -7;
  x[x.size() - 1] = 100;  // beyond the second row's length
  run(forward, x);
  const MagnitudeHistogram& first = observer->histograms().at("first.weight");
  EXPECT_EQ(first.maximum(), 7);
  EXPECT_EQ(first.count(), 8 * 64);
  EXPECT_EQ(observer->histograms().at("second.weight").count(), 8 * 48);
  EXPECT_EQ(observer->scales(CalibrationMethod::kMinMax).at("first.weight"), 7.0F / 127);
  observer->set_collecting(false);
  run(forward, x);
  EXPECT_EQ(first.count(), 8 * 64);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) error += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  return std::sqrt(error / size);
}

// Calibrated on one run, the model in static int8 is near the one in fp32; values beyond the scale are clipped.
TEST(ActivationObserver, AModelInStaticInt8) {
  Net net;
  const auto observer = std::make_shared<ActivationObserver>();
  const auto exact = open(net, {.observer = observer});
  const std::vector<float> x = inputs(), y = run(exact, x);
  WeightQuantization int8 = parse_quantization("int8");
  int8.input_scales = observer->scales(CalibrationMethod::kMinMax);
  const auto fixed = open(net, int8);
  EXPECT_LT(distance(run(fixed, x), y), 0.03);
  EXPECT_GT(distance(run(fixed, x), y), 0);
  std::vector<float> large = x;
  for (float& value : large) value *= 10;
  EXPECT_GT(distance(run(fixed, large), run(exact, large)), 0.3);
  int8.input_scales.erase("first.weight");  // then it takes a scale from each row
  for (auto& [weight, scale] : int8.input_scales) scale *= 10;
  const auto mixed = open(net, int8);
  EXPECT_LT(distance(run(mixed, large), run(exact, large)), 0.03);
}
}  // namespace
}  // namespace linnet

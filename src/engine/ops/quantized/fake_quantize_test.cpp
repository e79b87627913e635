#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
// Rounding is for the CPU.
class FakeQuantize : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::tested_backend()) GTEST_SKIP() << "on a device";
  }
};

Tensor step_literal(Graph& graph, DType dtype, double step) {
  const auto narrow = static_cast<float>(step);
  return dtype == DType::kF64 ? literal(graph, {dtype, {1}}, &step) : literal(graph, {dtype, {1}}, &narrow);
}

// Values, and the gradients of x and the step, against the float64 kernels; of few chunks and of many.
TEST_F(FakeQuantize, ValuesAndGradients) {
  for (const int64_t rows : {1, 7, 600})
    testing::check_op({.inputs = {{.shape = {rows, 96}}, {.shape = {rows, 96}}},
        .build =
            [](Graph& graph, const auto& x) {
              const Tensor step = step_literal(graph, x[0].type().dtype, 0.015625);
              const Tensor y = fake_quantize(x[0], step);
              std::vector<Tensor> out = gradients(sum_to(y * x[1], {}), std::array{x[0], step});
              out.push_back(y);
              return out;
            },
        .differentiate = false});
}

// The formulas, element by element. 127.5 steps are clipped, 2.5 steps are rounded to the even 2.
TEST_F(FakeQuantize, TheGradientOfTheStepIsThatOfThePaper) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {1, 4}}), step = graph.input("step", {DType::kF64, {1}});
  const Tensor dy = graph.input("dy", {DType::kF64, {1, 4}});
  const std::vector<Tensor> gradient = gradients(sum_to(fake_quantize(x, step) * dy, {}), std::array{x, step});
  graph.output("y", fake_quantize(x, step));
  graph.output("dx", gradient[0]), graph.output("ds", gradient[1]);
  NamedTensors inputs;
  const double values[] = {0.5 * 2.5, 0.5 * -127.5, 0.5 * 0.75, 0.5 * 127}, weights[] = {1, 10, 100, 1000}, half = 0.5;
  for (const auto& [name, data, count] : {std::tuple{"x", values, 4}, {"dy", weights, 4}, {"step", &half, 1}}) {
    const Shape shape = count == 4 ? Shape{1, 4} : Shape{1};
    HostTensor tensor(TensorType{DType::kF64, shape});
    std::memcpy(tensor.data(), data, static_cast<size_t>(count) * sizeof(double));
    inputs[name] = std::move(tensor);
  }
  for (const NamedTensors& out : testing::run_everywhere(graph, inputs)) {
    EXPECT_EQ(out.at("y").values(), (std::vector<double>{1, -63.5, 0.5, 63.5}));
    EXPECT_EQ(out.at("dx").values(), (std::vector<double>{1, 0, 100, 1000}));
    const double ds = 1 * (2 - 2.5) + 10 * -127.0 + 100 * (1 - 0.75) + 1000 * 0.0;
    EXPECT_NEAR(out.at("ds").as<double>()[0], ds / std::sqrt(127.0 * 4), 1e-12);
  }
}

// What training computes with is what static int8 multiplies.
TEST_F(FakeQuantize, TheValuesAreThoseOfTheInt8Product) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {1, 64}}), step = graph.input("step", {DType::kF32, {1}});
  graph.output("y", fake_quantize(x, step));
  HostTensor values(TensorType{DType::kF32, {1, 64}}), scale(TensorType{DType::kF32, {1}});
  for (int i = 0; i < 64; ++i) values.as<float>()[i] = std::sin(static_cast<float>(i)) * 3;
  scale.as<float>()[0] = 0.0191F;
  uint8_t codes[64];
  quantize_activations(values.as<float>().data(), 64, static_rounding(0.0191F), codes);
  for (const NamedTensors& out : testing::run_everywhere(graph, {{"x", values}, {"step", scale}}))
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(out.at("y").as<float>()[i], 0.0191F * static_cast<float>(codes[i] - 128)) << i;
}

TEST_F(FakeQuantize, WeightsAreRoundedRowByRowAndTheirGradientPassesThrough) {
  testing::check_op({.inputs = {{.shape = {37, 70}}, {.shape = {37, 70}}},
      .build =
          [](Graph&, const auto& x) {
            const Tensor rounded = round_weight(x[0]);
            return std::vector{gradients(sum_to(rounded * x[1], {}), std::array{x[0]})[0], rounded};
          },
      .tolerance = 1e-6,
      .differentiate = false});
}
}  // namespace
}  // namespace linnet

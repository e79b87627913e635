#include <gtest/gtest.h>
#include <array>
#include "engine/exec/op_trial.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "op_harness.h"

namespace linnet {
namespace {
struct Layer {
  int64_t outputs, inputs;
};

// The same values, in memory that begins one number later.
Tensor moved(Tensor x) {
  const int64_t count = x.shape().elements();
  const Tensor flat = reshape(x, {count}), longer = concat(std::array{slice(flat, 0, 0, 1), flat}, 0);
  return reshape(slice(longer, 0, 1, count), x.shape());
}

// Gradients of layers that share the number of rows. `on_device`: of operands in bf16, as GPUs compute them, some of
// which are not aligned to 16 bytes.
Graph gradients_of(const std::vector<Layer>& layers, int64_t rows, bool on_device) {
  Graph graph;
  std::vector<Tensor> in;
  std::vector<TensorType> out;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto [outputs, inputs] = layers[i];
    for (const auto& [name, width] : {std::pair{"dy", outputs}, {"x", inputs}}) {
      const Tensor x = graph.input(name + std::to_string(i), {DType::kF32, {rows, width}});
      in.push_back(on_device ? cast(x, DType::kBF16) : x);
      if (on_device && i % 2 == 1) in.back() = moved(in.back());
    }
    out.insert(out.end(), {{DType::kF32, {outputs, inputs}}, {DType::kF32, {outputs}}});
  }
  const std::vector<Tensor> results = graph.add_stored(kWeightGradients, in, {}, SourceLine::current(), out);
  for (size_t i = 0; i < results.size(); ++i) graph.output("y" + std::to_string(i), results[i]);
  return graph;
}

// Multiples of an eighth: products and sums are exact, in bf16 as in float64.
TEST(WeightGradients, OfLayersOfManySizes) {
  const std::vector<Layer> layers{{8, 8}, {64, 128}, {72, 136}, {200, 24}, {16, 264}};
  for (const int64_t rows : {1, 63, 128, 129, 300}) {
    const Graph plain = gradients_of(layers, rows, false);
    NamedTensors inputs;
    int state = 1;
    for (const GraphInput& input : plain.inputs()) {
      HostTensor tensor(plain.value(input.value).type);
      for (float& v : tensor.as<float>()) state = state * 75 % 65537, v = static_cast<float>(state % 33 - 16) / 8;
      inputs[input.name] = std::move(tensor);
    }
    const NamedTensors expected = interpret(plain, inputs).outputs;
    // Of one layer, by hand.
    const auto &dy = inputs.at("dy0"), &x = inputs.at("x0");
    double weight = 0, bias = 0;
    for (int64_t r = 0; r < rows; ++r) weight += dy[r * 8 + 3] * x[r * 8 + 5], bias += dy[r * 8 + 3];
    EXPECT_EQ(expected.at("y0")[3 * 8 + 5], weight);
    EXPECT_EQ(expected.at("y1")[3], bias);
    const Backend* backend = testing::tested_backend();
    if (!backend) continue;
    const NamedTensors found = PlannedGraph(gradients_of(layers, rows, true), 1, *backend).run(inputs);
    for (const auto& [name, tensor] : expected) EXPECT_EQ(found.at(name).values(), tensor.values()) << name << rows;
  }
}
}  // namespace
}  // namespace linnet

// Networks that ONNX Runtime's tools quantized (tests/golden/make_onnx_quantized.py), beside what ONNX Runtime
// computes.
#include "engine/ops/quantized/quantized.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include "engine/exec/interpreter.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/passes/passes.h"
#include "formats/safetensors.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace linnet {
namespace {
const std::string kFolder = "tests/golden/onnx_quantized/";

int64_t count(const Graph& graph, const OpDef& op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op == &op; });
}

HostTensor read(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.at(name);
  HostTensor tensor(entry.type);
  std::memcpy(tensor.as<float>().data(), entry.data, entry.bytes());
  return tensor;
}

class QuantizedNetworks : public ::testing::TestWithParam<const char*> {};

// Convolutions without groups are products of bytes; the depthwise one is computed in floats of the whole numbers.
TEST_P(QuantizedNetworks, GiveWhatOnnxRuntimeGives) {
  const std::string name = GetParam();
  const SafetensorsFile file(kFolder + "numbers.safetensors");
  const HostTensor x = read(file, "x"), expected = read(file, name);
  const auto network = load_onnx(kFolder + name + ".onnx");
  Trace trace;
  trace.graph().output("y", network->run({{"x", trace.input("x", x.type())}}).begin()->second);
  const Graph graph = optimize(trace.finish());
  NamedTensors inputs{{"x", x}};
  for (const ParameterSpec& spec : network->parameters()) {  // those that have not been quantized, such as biases
    if (!graph.find_input(spec.name)) continue;
    HostTensor numbers({DType::kF32, spec.shape});
    initialize(spec.initializer, spec.name, 0, spec.shape, numbers.as<float>());
    inputs[spec.name] = std::move(numbers);
  }
  const int64_t quantized = count(graph, kQuantizedConv2d) + count(graph, kQuantizedMatmul);
  EXPECT_GE(quantized, 4);  // all but the depthwise one, of which one is a product
  if (name != "integer") {  // there, others add up weights
    EXPECT_EQ(count(graph, kConv2d), 1);
  }
  for (const Node& node : graph.nodes())  // weights are floats and added up when the network is traced
    if (node.op->name == std::string("literal")) {
      EXPECT_NE(graph.value(node.out[0]).type.dtype, DType::kF64);
    }
  const auto got = interpret(graph, inputs, {.kernels = KernelSet::kFast}).outputs.at("y").values();
  ASSERT_EQ(std::ssize(got), expected.type().shape.elements());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[static_cast<int64_t>(i)], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizedNetworks, ::testing::Values("qdq", "qoperator", "integer"),
    [](const auto& info) { return std::string(info.param); });
}  // namespace
}  // namespace linnet

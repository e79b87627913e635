// Operators of PyTorch's exports and quantized models, against numbers by hand; `linnet onnx test` checks all of them.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "error_of.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace linnet {
namespace {
struct Operand {
  std::vector<int64_t> dims;
  std::vector<float> values;
  OnnxElement element = OnnxElement::kFloat;
  bool known = false;
};

OnnxAttribute text_attribute(std::string name, std::string value) {
  return {.name = std::move(name), .type = OnnxAttribute::kString, .s = std::move(value)};
}

struct RunAs {
  int64_t opset = 17;
  bool training = false;
};

// The results of one node.
std::vector<std::vector<double>> run_node(const std::string& op, const std::vector<Operand>& operands, size_t results,
    std::vector<OnnxAttribute> attributes = {}, RunAs as = {}) {
  OnnxModel model;
  model.opsets[""] = as.opset;
  OnnxNode node{.name = "node", .op = op, .in = {}, .out = {}, .attributes = std::move(attributes)};
  if (const size_t dot = op.rfind('.'); dot != op.npos) node.domain = op.substr(0, dot), node.op = op.substr(dot + 1);
  Trace trace({.training = as.training});
  TracedValues values;
  NamedTensors host;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    const std::string name = operand.values.empty() ? "" : "in" + std::to_string(i);
    node.in.push_back(name);
    if (name.empty()) continue;
    model.graph.inputs.push_back({.name = name, .element = operand.element});
    const Shape shape{std::span<const int64_t>(operand.dims)};
    if (operand.known) {
      values[name] = known_numbers(operand.element, shape, {operand.values.begin(), operand.values.end()});
    } else {
      values[name] = {.element = operand.element, .tensor = trace.input(name, {DType::kF32, shape})};
      host[name] = HostTensor({DType::kF32, shape}, std::span<const float>(operand.values));
    }
  }
  for (size_t i = 0; i < results; ++i) {
    node.out.push_back("out" + std::to_string(i));
    model.graph.outputs.push_back({.name = node.out.back(), .element = OnnxElement::kFloat});
  }
  model.graph.nodes = {node};
  OnnxNetwork network(model, "node.onnx");
  for (const auto& [name, value] : network.trace(trace.graph(), values)) trace.graph().output(name, value.tensor);
  Graph graph = trace.finish();
  for (const GraphInput& input : graph.inputs())
    if (!host.contains(input.name)) host[input.name] = HostTensor(graph.value(input.value).type);  // "random"
  const NamedTensors outputs = interpret(graph, host).outputs;
  std::vector<std::vector<double>> got;
  for (const std::string& name : node.out) got.push_back(outputs.at(name).values());
  return got;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

// Three steps of two rows, of which the second ends after the first step: its output is 0 then, its state stays.
TEST(OnnxOperators, LstmKeepsTheStateOfRowsThatHaveEnded) {
  const auto got = run_node("LSTM",
      {{{3, 2, 1}, {1, -2, 0.5F, 2, -0.25F, 3}}, {{1, 4, 1}, {0.5F, -0.3F, 0.8F, 0.2F}},
          {{1, 4, 1}, {0.1F, 0.4F, -0.2F, 0.6F}}, {{1, 8}, {0.05F, 0.1F, -0.1F, 0.2F, 0, 0, 0.3F, 0}},
          {{2}, {3, 1}, OnnxElement::kInt32, true}},
      3, {int_attribute("hidden_size", 1)});
  expect_near(got[0], {0.1064114, -0.0367433, 0.1700066, 0, 0.1604791, 0});
  expect_near(got[1], {0.1604791, -0.0367433});
  expect_near(got[2], {0.2945726, -0.0550450});
}

// Gates lie in ONNX's order, and each direction has weights of its own. PyTorch 2.15's numbers (torch.nn.LSTM).
TEST(OnnxOperators, LstmOfTwoDirections) {
  std::vector<float> in(8), recurrent(8);
  for (size_t i = 0; i < 8; ++i)
    in[i] = 0.1F * static_cast<float>(i) - 0.3F, recurrent[i] = 0.5F - 0.15F * static_cast<float>(i);
  const auto got = run_node("LSTM", {{{3, 1, 1}, {1, -2, 0.5F}}, {{2, 4, 1}, in}, {{2, 4, 1}, recurrent}}, 3,
      {text_attribute("direction", "bidirectional"), int_attribute("hidden_size", 1)});
  expect_near(got[0], {0.0000000, 0.0378480, -0.0000000, -0.1049093, -0.0000000, 0.0529235});
  expect_near(got[1], {-0.0000000, 0.0378480});
  expect_near(got[2], {-0.0000000, 0.0681384});
}

TEST(OnnxOperators, RecurrentOperandsOfAnotherShapeAreNamed) {
  const Operand x{{3, 1, 1}, {1, -2, 0.5F}}, in{{1, 4, 1}, {1, 2, 3, 4}};
  const auto message = [&](const Operand& recurrent, const Operand& bias) {
    return error_of([&] { run_node("LSTM", {x, in, recurrent, bias}, 1); });
  };
  EXPECT_EQ(message(in, {{1, 4}, {1, 2, 3, 4}}), "LSTM \"node\": B of shape [1, 4], expected [1, 8]");
  EXPECT_EQ(message({{1, 3, 1}, {1, 2, 3}}, {}), "LSTM \"node\": R of shape [1, 3, 1], expected [1, 4, 1]");
}

// The stride of the other axis, along which there is one result, does not matter.
TEST(OnnxOperators, ConvolutionsAlongOneAxisTakeItsStride) {
  const Operand x{{1, 1, 6}, {1, 2, 3, 4, 5, 6}}, weight{{1, 1, 2}, {10, 1}};
  const OnnxAttribute strides = ints_attribute("strides", {3}), both = ints_attribute("strides", {2, 3});
  EXPECT_EQ(run_node("Conv", {x, weight}, 1, {strides})[0], (std::vector<double>{12, 45}));
  const Operand image{{1, 1, 1, 6}, x.values}, filter{{1, 1, 1, 2}, weight.values};
  EXPECT_EQ(run_node("Conv", {image, filter}, 1, {both})[0], (std::vector<double>{12, 45}));
}

// What is above output_shape is cut off at the beginning, but of SAME_UPPER at the end; what is missing is at the end.
TEST(OnnxOperators, TransposedConvolutionsAreCutToTheirShape) {
  const Operand x{{1, 1, 2}, {1, 10}}, weight{{1, 1, 3}, {1, 2, 3}};
  const auto cut_to = [&](int64_t size, const std::string& automatic) {
    return run_node("ConvTranspose", {x, weight}, 1,
        {ints_attribute("strides", {2}), ints_attribute("output_shape", {size}),
            text_attribute("auto_pad", automatic)})[0];
  };
  const std::vector<double> whole{1, 2, 13, 20, 30};
  EXPECT_EQ(cut_to(5, "NOTSET"), whole);
  EXPECT_EQ(cut_to(4, "NOTSET"), std::vector<double>(whole.begin() + 1, whole.end()));
  EXPECT_EQ(cut_to(4, "SAME_LOWER"), cut_to(4, "NOTSET"));
  EXPECT_EQ(cut_to(4, "SAME_UPPER"), std::vector<double>(whole.begin(), whole.end() - 1));
  EXPECT_EQ(cut_to(6, "NOTSET"), (std::vector<double>{1, 2, 13, 20, 30, 0}));
}

// The corners of 5 elements that 3 x 1.75 gives lie on those of the 3, as in PyTorch.
TEST(OnnxOperators, ResizeAlignsCornersOfWholeSizes) {
  const auto got = run_node("Resize", {{{1, 1, 3}, {0, 10, 30}}, {}, {{3}, {1, 1, 1.75F}, OnnxElement::kFloat, true}},
      1, {text_attribute("mode", "linear"), text_attribute("coordinate_transformation_mode", "align_corners")});
  expect_near(got[0], {0, 5, 10, 20, 30});
}

// Computed indices, as exporters write x[arange(rows), last]: of one axis in each batch, and of two axes.
TEST(OnnxOperators, GatherNdTakesComputedIndices) {
  const Operand x{{2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  for (const bool known : {false, true}) {
    EXPECT_EQ(run_node("GatherND", {x, {{2, 1}, {2, -3}, OnnxElement::kInt64, known}}, 1,
                  {int_attribute("batch_dims", 1)})[0],
        (std::vector<double>{4, 5, 6, 7}));
    EXPECT_EQ(run_node("GatherND", {x, {{3, 2}, {1, 2, 0, 1, -1, -2}, OnnxElement::kInt64, known}}, 1)[0],
        (std::vector<double>{10, 11, 2, 3, 8, 9}));
  }
  EXPECT_THROW(run_node("GatherND", {x, {{1, 2}, {1, 3}, OnnxElement::kInt64, true}}, 1), Error);
}

TEST(OnnxOperators, GatherCountsComputedIndicesFromTheEnd) {
  const Operand x{{3, 2}, {0, 1, 2, 3, 4, 5}}, ids{{2}, {-1, 0}, OnnxElement::kInt64};
  EXPECT_EQ(run_node("Gather", {x, ids}, 1)[0], (std::vector<double>{4, 5, 0, 1}));
  EXPECT_EQ(run_node("Gather", {x, ids}, 1, {int_attribute("axis", 1)})[0], (std::vector<double>{1, 0, 3, 2, 5, 4}));
  const Operand each{{1, 2}, {-1, -3}, OnnxElement::kInt64};
  EXPECT_EQ(run_node("GatherElements", {x, each}, 1)[0], (std::vector<double>{4, 1}));
}

// In training mode, while the network is trained: what is left is scaled, and the second result says what that is.
TEST(OnnxOperators, DropoutDropsInTraining) {
  const Operand x{{4, 16}, std::vector<float>(64, 3)}, ratio{{}, {0.25F}, OnnxElement::kFloat, true},
      mode{{}, {1}, OnnxElement::kBool, true};
  const auto got = run_node("Dropout", {x, ratio, mode}, 2, {}, {.training = true});
  const auto left = std::ranges::count_if(got[0], [](double value) { return value != 0; });
  EXPECT_GT(left, 32);
  EXPECT_LT(left, 62);
  for (size_t i = 0; i < got[0].size(); ++i) EXPECT_NEAR(got[0][i], got[1][i] * 4, 1e-6);
  EXPECT_EQ(run_node("Dropout", {x, ratio, mode}, 1)[0], std::vector<double>(64, 3));
}

// Names of nodes are optional, and each dropout draws a mask of its own.
TEST(OnnxOperators, DropoutsWithoutNamesDiffer) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
  TracedValues values{
      {"ratio", known_numbers(OnnxElement::kFloat, {}, {0.5})}, {"mode", known_numbers(OnnxElement::kBool, {}, {1})}};
  for (const auto& [name, value] : values) model.graph.inputs.push_back({.name = name, .element = value.element});
  for (const char* out : {"a", "b"}) {
    model.graph.outputs.push_back({.name = out, .element = OnnxElement::kFloat});
    model.graph.nodes.push_back({.op = "Dropout", .in = {"x", "ratio", "mode"}, .out = {out}});
  }
  Trace trace({.training = true});
  const TensorType type{DType::kF32, {4, 16}};
  values["x"] = {.element = OnnxElement::kFloat, .tensor = trace.input("x", type)};
  OnnxNetwork network(model, "dropouts.onnx");
  for (const auto& [name, value] : network.trace(trace.graph(), values)) trace.graph().output(name, value.tensor);
  const std::vector<float> ones(64, 1);
  const NamedTensors inputs{{"x", HostTensor(type, std::span(ones))}, {"random", HostTensor({DType::kI32, {4}})}};
  const NamedTensors got = interpret(trace.finish(), inputs).outputs;
  EXPECT_NE(got.at("a").values(), got.at("b").values());
}

TEST(OnnxOperators, SeluHasTheConstantsOfItsAuthors) {
  expect_near(run_node("Selu", {{{3}, {-1, 0, 100}}}, 1)[0], {-1.1113307, 0, 105.0700987}, 1e-5);
}

// The statistics of x, and those that are kept of all x so far. Two images of two channels.
TEST(OnnxOperators, BatchNormalizationMayUseTheStatisticsOfItsOperand) {
  const auto got = run_node("BatchNormalization",
      {{{2, 2, 2}, {1, 3, 10, 10, 5, 7, 30, 30}}, {{2}, {1, 2}}, {{2}, {0.5F, -1}}, {{2}, {0, 10}}, {{2}, {1, 1}}}, 3,
      {int_attribute("training_mode", 1), float_attribute("epsilon", 0)});
  const double root = std::sqrt(5.0);
  expect_near(got[0], {-3 / root + 0.5, -1 / root + 0.5, -3, -3, 1 / root + 0.5, 3 / root + 0.5, 1, 1});
  expect_near(got[1], {0.4, 11});
  expect_near(got[2], {1.4, 10.9}, 1e-5);
}

// Before opset 14 five results say that it is in training mode: the last two are the statistics of the operand.
TEST(OnnxOperators, BatchNormalizationBeforeOpset14TrainsWhereItHasFiveResults) {
  const auto got =
      run_node("BatchNormalization", {{{4, 1}, {1, 3, 5, 7}}, {{1}, {1}}, {{1}, {0}}, {{1}, {0}}, {{1}, {1}}}, 5,
          {float_attribute("epsilon", 0)}, {.opset = 9});
  const double root = std::sqrt(5.0);
  expect_near(got[0], {-3 / root, -1 / root, 1 / root, 3 / root});
  expect_near(got[3], {4});
  expect_near(got[4], {5});
}

TEST(OnnxOperators, SumsAlongAShortAxisAndElementsTakenTwice) {
  const Operand x{{1, 2, 3}, {1, 2, 3, 10, 20, 30}}, axis{{1}, {1}, OnnxElement::kInt64, true};
  EXPECT_EQ(run_node("ReduceSum", {x, axis}, 1)[0], (std::vector<double>{11, 22, 33}));
  const Operand image{{1, 1, 2, 2}, {1, 2, 3, 4}}, scales{{4}, {1, 1, 2, 3}, OnnxElement::kFloat, true};
  const auto resized = run_node("Resize", {image, {{0}, {}}, scales}, 1,
      {text_attribute("coordinate_transformation_mode", "asymmetric"), text_attribute("nearest_mode", "floor")});
  EXPECT_EQ(resized[0], (std::vector<double>{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2,  //
                            3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4}));
}

// Exporters write GELU as elementary operators, each in its own order. A factor that is another is no GELU.
TEST(OnnxOperators, GeluIsKnownHoweverItIsSpelled) {
  for (const auto& [order, factor] : {std::pair{0, 0.5}, {1, 0.5}, {0, 0.51}}) {
    const auto constant = [](const std::string& name, double value) {
      return std::pair{name, known_numbers(OnnxElement::kFloat, {}, {value})};
    };
    OnnxModel model;
    model.opsets[""] = 17;
    for (const char* name : {"x", "root", "one", "half"})
      model.graph.inputs.push_back({.name = name, .element = OnnxElement::kFloat});
    model.graph.nodes = {{.name = "d", .op = "Div", .in = {"x", "root"}, .out = {"d"}},
        {.name = "e", .op = "Erf", .in = {"d"}, .out = {"e"}},
        {.name = "a", .op = "Add", .in = {"e", "one"}, .out = {"a"}}};
    if (order == 0)
      model.graph.nodes.insert(
          model.graph.nodes.end(), {{.name = "m", .op = "Mul", .in = {"x", "a"}, .out = {"m"}},
                                       {.name = "y", .op = "Mul", .in = {"m", "half"}, .out = {"y"}}});
    else
      model.graph.nodes.insert(
          model.graph.nodes.end(), {{.name = "m", .op = "Mul", .in = {"half", "x"}, .out = {"m"}},
                                       {.name = "y", .op = "Mul", .in = {"m", "a"}, .out = {"y"}}});
    model.graph.outputs.push_back({.name = "y", .element = OnnxElement::kFloat});
    OnnxNetwork network(model, "gelu.onnx");
    Trace trace;
    const TracedValues values{{"x", {.tensor = trace.input("x", {DType::kF32, {3}})}}, constant("root", std::sqrt(2.0)),
        constant("one", 1), constant("half", factor)};
    trace.graph().output("y", network.trace(trace.graph(), values).at("y").tensor);
    const Graph graph = remove_dead_code(trace.finish());
    EXPECT_EQ(graph.node_count() == 1, factor == 0.5) << dump(graph);
    const std::vector<float> x{-1, 0.5F, 2};
    const NamedTensors host{{"x", HostTensor({DType::kF32, {3}}, std::span<const float>(x))}};
    std::vector<double> expected;
    for (const float v : x) expected.push_back(factor * v * (1 + std::erf(v / std::sqrt(2.0))));
    expect_near(interpret(graph, host).outputs.at("y").values(), expected);
  }
}

// As PyTorch's hardtanh, ReLU6 and leaky ReLU: a bound has no gradient, and zero the slope's.
TEST(OnnxOperators, GradientsAtBounds) {
  const std::vector<float> x{-1, 0, 2, 6, 7};
  for (const auto& [op, expected] : {std::pair{"Clip", std::vector<double>{0, 0, 1, 0, 0}},
           {"LeakyRelu", {0.25, 0.25, 1, 1, 1}}, {"Relu", {0, 0, 1, 1, 1}}}) {
    OnnxModel model;
    model.opsets[""] = 6;
    model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
    std::vector<OnnxAttribute> attributes{float_attribute("alpha", 0.25F)};
    if (std::string(op) == "Clip") attributes = {float_attribute("min", 0), float_attribute("max", 6)};
    if (std::string(op) == "Relu") attributes.clear();
    model.graph.nodes = {{.name = "n", .op = op, .in = {"x"}, .out = {"y"}, .attributes = attributes}};
    model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
    OnnxNetwork network(model, "bounds.onnx");
    Trace trace;
    const Tensor input = trace.input("x", {DType::kF32, {5}});
    const Tensor y = network.trace(trace.graph(), {{"x", {.tensor = input}}}).at("y").tensor;
    trace.graph().output("slope", gradients(sum_to(y, {}), std::array{input})[0]);
    const NamedTensors host{{"x", HostTensor({DType::kF32, {5}}, std::span<const float>(x))}};
    EXPECT_EQ(interpret(trace.finish(), host).outputs.at("slope").values(), expected) << op;
  }
}

TEST(OnnxOperators, TopKIsSortedAndEqualOnesKeepTheirOrder) {
  const Operand x{{2, 4}, {1, 3, 3, 2, -5, -1, 0, -7}}, k{{1}, {3}, OnnxElement::kInt64, true};
  const auto largest = run_node("TopK", {x, k}, 2);
  EXPECT_EQ(largest[0], (std::vector<double>{3, 3, 2, 0, -1, -5}));
  EXPECT_EQ(largest[1], (std::vector<double>{1, 2, 3, 2, 1, 0}));
  const auto smallest = run_node("TopK", {x, k}, 2, {int_attribute("largest", 0)});
  EXPECT_EQ(smallest[0], (std::vector<double>{1, 2, 3, -7, -5, -1}));
  EXPECT_EQ(smallest[1], (std::vector<double>{0, 3, 1, 3, 0, 1}));
  std::vector<float> many(200);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i * 37 % 200);
  const auto of_many =
      run_node("TopK", {{{100, 2}, many}, {{1}, {70}, OnnxElement::kInt64, true}}, 1, {int_attribute("axis", 0)});
  ASSERT_EQ(of_many[0].size(), 140);  // even places have even numbers
  EXPECT_EQ(of_many[0][0], 198);
  EXPECT_EQ(of_many[0][138], 60);
  const Operand too_many{{1}, {5}, OnnxElement::kInt64, true};
  EXPECT_THROW(run_node("TopK", {x, too_many}, 2), Error);
}

TEST(OnnxOperators, ReshapeRefusesSizesWhoseProductOverflows) {
  const Operand x{{2, 2}, {1, 2, 3, 4}}, sizes{{3}, {0x1p62F, 4, -1}, OnnxElement::kInt64, true};
  const std::string message = error_of([&] { run_node("Reshape", {x, sizes}, 1); });
  EXPECT_PRED2(has_text, message, "more elements than a program can count");
}

// Halves go to the even number, and what is beyond the range is its end. A scale for each row.
TEST(OnnxOperators, QuantizedNumbersAreWholeAndWithinTheirRange) {
  const Operand scale{{2}, {1, 0.5F}}, zero{{2}, {0, 10}, OnnxElement::kInt8, true};
  const auto whole =
      run_node("QuantizeLinear", {{{2, 3}, {0.5F, 1.5F, -200, 1, -1, 70}}, scale, zero}, 1, {int_attribute("axis", 0)});
  EXPECT_EQ(whole[0], (std::vector<double>{0, 2, -128, 12, 8, 127}));
  const auto back = run_node("DequantizeLinear",
      {{{2, 3}, {0, 2, -128, 12, 8, 127}, OnnxElement::kInt8, true}, scale, zero}, 1, {int_attribute("axis", 0)});
  EXPECT_EQ(back[0], (std::vector<double>{0, 2, -128, 1, -1, 58.5}));
  const auto zeros = run_node("DynamicQuantizeLinear", {{{2, 2}, {0, 0, 0, 0}}}, 3);
  EXPECT_EQ(zeros[0], std::vector<double>(4));
  EXPECT_EQ(zeros[1], std::vector<double>{1});
}

// QuantizeLinear and DequantizeLinear around a MatMul, or DynamicQuantizeLinear before a MatMulInteger: one product of
// bytes, for all types and zero points that quantizers write.
TEST(OnnxOperators, QuantizedProductsAreOfWholeNumbers) {
  const std::vector<float> x{0.6F, -1.2F, 2.9F, -0.17F, 1.47F, 9};
  for (const bool is_signed : {true, false})
    for (const bool dynamic : {true, false}) {
      const OnnxElement element = is_signed ? OnnxElement::kInt8 : OnnxElement::kUint8;
      const double shift = is_signed ? 0 : 131;  // of the weight: 255 - 131 and 0 - 131 are no bytes together
      std::vector<double> codes{-128 + shift, 100 + shift, 3 + shift, -7 + shift, 127, 1 + shift};
      if (!is_signed) codes[0] = 0, codes[4] = 255;
      OnnxModel model;
      model.opsets[""] = 17;
      OnnxGraph& graph = model.graph;
      graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
      graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
      if (dynamic)
        graph.nodes = {{.name = "q", .op = "DynamicQuantizeLinear", .in = {"x"}, .out = {"xq", "xs", "xz"}},
            {.name = "m", .op = "MatMulInteger", .in = {"xq", "w", "xz", "wz"}, .out = {"i"}},
            {.name = "c", .op = "Cast", .in = {"i"}, .out = {"f"}, .attributes = {int_attribute("to", 1)}},
            {.name = "s", .op = "Mul", .in = {"f", "xs"}, .out = {"y"}}};
      else
        graph.nodes = {{.name = "q", .op = "QuantizeLinear", .in = {"x", "xs", "xz"}, .out = {"xq"}},
            {.name = "d", .op = "DequantizeLinear", .in = {"xq", "xs", "xz"}, .out = {"xd"}},
            {.name = "w", .op = "DequantizeLinear", .in = {"w", "one", "wz"}, .out = {"wd"}},
            {.name = "m", .op = "MatMul", .in = {"xd", "wd"}, .out = {"y"}}};
      Trace trace;
      TracedValues values{{"x", {.tensor = trace.input("x", {DType::kF32, {2, 3}})}},
          {"w", known_numbers(element, {3, 2}, codes)}, {"wz", known_numbers(element, {}, {shift})},
          {"one", known_numbers(OnnxElement::kFloat, {}, {1})}};
      const double scale = dynamic ? static_cast<double>((9 + 1.2F) / 255) : 0.0625;
      const double zero = dynamic ? std::nearbyint(1.2 / scale) : is_signed ? -100 : 20;
      if (!dynamic) {
        values["xs"] = known_numbers(OnnxElement::kFloat, {}, {scale});
        values["xz"] = known_numbers(element, {}, {zero});
      } else {
        graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
      }
      for (const char* name : {"w", "wz", "one", "xs", "xz"})
        if (values.contains(name)) graph.inputs.push_back({.name = name, .element = values[name].element});
      OnnxNetwork network(model, "quantized.onnx");
      trace.graph().output("y", network.trace(trace.graph(), values).at("y").tensor);
      const Graph optimized = optimize(trace.finish());
      EXPECT_TRUE(
          std::ranges::any_of(optimized.nodes(), [](const Node& node) { return node.op == &kQuantizedMatmul; }));
      const NamedTensors host{{"x", HostTensor({DType::kF32, {2, 3}}, std::span<const float>(x))}};
      const auto got = interpret(optimized, host, {.kernels = KernelSet::kFast}).outputs.at("y").values();
      const double least = is_signed && !dynamic ? -128 : 0;
      std::vector<double> expected;
      for (size_t i = 0; i < 2; ++i)
        for (size_t j = 0; j < 2; ++j) {
          double sum = 0;
          for (size_t t = 0; t < 3; ++t) {
            const double code = std::clamp(std::nearbyint(x[i * 3 + t] / scale) + zero, least, least + 255);
            sum += (code - zero) * (codes[t * 2 + j] - shift);
          }
          expected.push_back(sum * scale);
        }
      expect_near(got, expected, 1e-3);
    }
}

// A causal mask lets the first query see the first key alone; a mask that hides all keys makes the result 0.
TEST(OnnxOperators, AttentionHidesWhatIsMasked) {
  const Operand q{{1, 1, 2, 1}, {1, 2}}, k{{1, 1, 2, 1}, {0.5F, -1}}, v{{1, 1, 2, 1}, {3, 7}};
  const double first = std::exp(1.0), second = std::exp(-2.0);
  const auto causal = run_node("Attention", {q, k, v}, 1, {int_attribute("is_causal", 1)});
  expect_near(causal[0], {3, (3 * first + 7 * second) / (first + second)});
  const Operand mask{{2, 2}, {0, 0, 0, 1}, OnnxElement::kBool, true};
  expect_near(run_node("Attention", {q, k, v, mask}, 1)[0], {0, 7});
}

// What ONNX Runtime's optimizer writes: one head, whose queries, keys and values are the input itself, and 1 of 2 keys.
TEST(OnnxOperators, FusedAttentionHidesKeysBehindALength) {
  const Operand x{{1, 2, 1}, {0.5F, 2}}, weights{{1, 3}, {1, 1, 1}}, bias{{3}, {0, 0, 1}},
      length{{1}, {1}, OnnxElement::kInt32}, past{{2, 1, 1, 1, 1}, {3, 7}};
  expect_near(run_node("com.microsoft.Attention", {x, weights, bias, length}, 1, {int_attribute("num_heads", 1)})[0],
      {1.5, 1.5});
  // Causal, with one earlier key: the first query sees that and itself.
  const auto causal = run_node("com.microsoft.Attention", {x, weights, bias, {{1}, {}}, past}, 2,
      {int_attribute("num_heads", 1), int_attribute("unidirectional", 1)});
  const double first = std::exp(1.5), second = std::exp(0.25);
  EXPECT_NEAR(causal[0][0], (7 * first + 1.5 * second) / (first + second), 1e-6);
  expect_near(causal[1], {3, 0.5, 2, 7, 1.5, 3});
}

TEST(OnnxOperators, FusedNormsGiveTheirSumsToo) {
  const Operand x{{1, 2}, {1, 2}}, skip{{1, 2}, {3, 8}}, weight{{2}, {2, 2}}, beta{{2}, {1, 1}}, bias{{2}, {0, 2}};
  const auto got = run_node("com.microsoft.SkipLayerNormalization", {x, skip, weight, beta, bias}, 1);
  expect_near(got[0], {-1, 3}, 1e-5);  // of 4 and 12
  expect_near(run_node("com.microsoft.SkipSimplifiedLayerNormalization", {x, skip, weight, bias}, 1)[0],
      {2 * 4 / std::sqrt(80.0), 2 * 12 / std::sqrt(80.0)}, 1e-5);
}

TEST(OnnxOperators, LossesLeaveIgnoredTargetsOut) {
  const Operand scores{{3, 2}, {0, 0, 2, 0, 5, -5}}, targets{{3}, {0, 1, -1}, OnnxElement::kInt64};
  const double first = std::log(2.0), second = std::log(1 + std::exp(2.0));
  const auto mean = run_node("SoftmaxCrossEntropyLoss", {scores, targets}, 1, {int_attribute("ignore_index", -1)});
  expect_near(mean[0], {(first + second) / 2});
  const auto each = run_node("SoftmaxCrossEntropyLoss", {scores, targets}, 1,
      {int_attribute("ignore_index", -1), text_attribute("reduction", "none")});
  expect_near(each[0], {first, second, 0});
}

// Behind a convolution an image has its channels last; what follows is computed there, without moving it back.
TEST(OnnxOperators, WhatFollowsAConvolutionIsWhatItIsOfAnyTensor) {
  const Shape shape{2, 3, 4, 5};
  std::vector<float> image(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>((i * 37) % 29) - 11;
  const auto list = [](std::vector<double> values) {
    const auto count = static_cast<int64_t>(values.size());
    return known_numbers(OnnxElement::kInt64, {count}, std::move(values));
  };
  const TracedValues known{{"identity", known_numbers(OnnxElement::kFloat, {3, 3, 1, 1}, {1, 0, 0, 0, 1, 0, 0, 0, 1})},
      {"half", known_numbers(OnnxElement::kFloat, {2, 3, 1, 1}, {.5, 2, -1, 3, 1, .25})},
      {"rows", known_numbers(OnnxElement::kFloat, {4, 1}, {1, -1, 2, 3})},
      {"two", known_numbers(OnnxElement::kFloat, {1}, {2})}, {"from", list({1, 0})}, {"to", list({3, 4})},
      {"axes", list({1, 3})}, {"spatial", list({2, 3})}, {"pads", list({0, 1, 0, 2, 0, 0, 1, 0})},
      {"places", list({2, 3, -1})}, {"one_group", list({2, 1, -1})}, {"squares", list({2, 3, 2, 2, 5})},
      {"whole", list({2, 3, 4, 5})}, {"odd", list({2, 6, 10})}};
  const auto value = [&](const std::vector<OnnxNode>& nodes, bool behind_convolution) {
    OnnxModel model;
    model.opsets[""] = 13;
    Trace trace;
    TracedValues values = known;
    values["image"] = {.element = OnnxElement::kFloat, .tensor = trace.input("image", {DType::kF32, shape})};
    for (const auto& [name, kept] : values) model.graph.inputs.push_back({.name = name, .element = kept.element});
    if (behind_convolution) {
      model.graph.nodes.push_back({.name = "c", .op = "Conv", .in = {"image", "identity"}, .out = {"x"}});
    } else {
      model.graph.nodes.push_back({.name = "i", .op = "Identity", .in = {"image"}, .out = {"x"}});
    }
    model.graph.nodes.insert(model.graph.nodes.end(), nodes.begin(), nodes.end());
    model.graph.outputs.push_back({.name = "y", .element = OnnxElement::kFloat});
    OnnxNetwork network(model, "image.onnx");
    for (const auto& [name, traced] : network.trace(trace.graph(), values)) trace.graph().output(name, traced.tensor);
    const NamedTensors host{{"image", HostTensor({DType::kF32, shape}, std::span<const float>(image))}};
    return interpret(trace.finish(), host).outputs.at("y").values();
  };
  const auto node = [](const std::string& op, std::vector<std::string> in, const std::string& out,
                        std::vector<OnnxAttribute> attributes = {}) {
    return OnnxNode{.name = op, .op = op, .in = std::move(in), .out = {out}, .attributes = std::move(attributes)};
  };
  const OnnxNode moved_back = node("Transpose", {"p"}, "q", {ints_attribute("perm", {0, 2, 1})});
  const std::vector<std::vector<OnnxNode>> networks{
      {node("Concat", {"x", "x"}, "y", {int_attribute("axis", 1)})},
      {node("Concat", {"x", "image"}, "y", {int_attribute("axis", 2)})},
      {node("Slice", {"x", "from", "to", "axes"}, "y")},
      {node("Pad", {"x", "pads"}, "y")},
      {node("Mul", {"x", "half"}, "y")},
      {node("Add", {"x", "rows"}, "y")},
      {node("Add", {"x", "image"}, "y")},
      {node("ReduceMean", {"x"}, "y", {ints_attribute("axes", {2, 3})})},
      {node("ReduceSum", {"x", "spatial"}, "m"), node("Mul", {"x", "m"}, "y")},
      {node("GlobalAveragePool", {"x"}, "m"), node("Conv", {"m", "identity"}, "s"), node("Mul", {"x", "s"}, "y")},
      {node("AveragePool", {"x"}, "y", {ints_attribute("kernel_shape", {3, 2}), ints_attribute("pads", {1, 0, 1, 1})})},
      {node("Reshape", {"x", "places"}, "p"), moved_back, node("Identity", {"q"}, "y")},
      {node("Reshape", {"x", "squares"}, "y")},
      {node("Reshape", {"x", "odd"}, "y")},
      {node("Reshape", {"x", "places"}, "p"), node("Reshape", {"p", "whole"}, "q"), node("Mul", {"q", "x"}, "y")},
      {node("Reshape", {"x", "one_group"}, "p"), node("InstanceNormalization", {"p", "two", "two"}, "n"),
          node("Reshape", {"n", "whole"}, "y")},
  };
  for (const auto& nodes : networks) {
    SCOPED_TRACE(nodes.front().op + " " + nodes.front().in.back());
    expect_near(value(nodes, true), value(nodes, false), 2e-5);
  }
}
}  // namespace
}  // namespace linnet

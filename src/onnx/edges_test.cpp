// Operands that a file may hold though no exporter writes them, and numbers at the edges of a type.
#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "error_of.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace linnet {
namespace {
struct Known {
  Shape shape;
  std::vector<double> values;
  OnnxElement element = OnnxElement::kFloat;
};

// The result of one node whose operands are known, and its shape.
std::pair<std::vector<double>, Shape> result_of(
    const std::string& op, const std::vector<Known>& operands, std::vector<OnnxAttribute> attributes = {}) {
  OnnxModel model;
  model.opsets[""] = 18;
  OnnxNode node{.name = "node", .op = op, .in = {}, .out = {"y"}, .attributes = std::move(attributes)};
  TracedValues values;
  for (size_t i = 0; i < operands.size(); ++i) {
    node.in.push_back("x" + std::to_string(i));
    model.graph.inputs.push_back({.name = node.in.back(), .element = operands[i].element});
    values[node.in.back()] = known_numbers(operands[i].element, operands[i].shape, operands[i].values);
  }
  model.graph.nodes = {node};
  model.graph.outputs.push_back({.name = "y", .element = OnnxElement::kFloat});
  OnnxNetwork network(model, "node.onnx");
  Trace trace;
  const HostTensor y = *network.trace(trace.graph(), values).at("y").known;
  return {y.values(), y.type().shape};
}

Known whole(Shape shape, std::vector<double> values) { return {shape, std::move(values), OnnxElement::kInt64}; }

std::string refusal(
    const std::string& op, const std::vector<Known>& operands, std::vector<OnnxAttribute> attributes = {}) {
  return error_of([&] { result_of(op, operands, std::move(attributes)); });
}

const Known kTwoByThree{{2, 3}, {1, 2, 3, 4, 5, 6}};

TEST(OnnxEdges, IndicesBeyondTheDataAreRefused) {
  const Known many = whole({4000, 1}, std::vector<double>(4000, 0)), wide = whole({1, 4}, {0, 0, 0, 0});
  const std::vector<OnnxAttribute> last{int_attribute("axis", 1)};
  EXPECT_PRED2(has_text, refusal("GatherElements", {kTwoByThree, many}, last), "an index outside of the data");
  EXPECT_PRED2(has_text, refusal("GatherElements", {kTwoByThree, wide}), "an index outside of the data");
  const Known updates{{4000, 1}, std::vector<double>(4000, 7)}, row{{1, 4}, {7, 7, 7, 7}};
  EXPECT_PRED2(
      has_text, refusal("ScatterElements", {kTwoByThree, many, updates}, last), "an index outside of the data");
  EXPECT_PRED2(has_text, refusal("ScatterElements", {kTwoByThree, wide, row}), "an index outside of the data");
  const Known fits = whole({1, 2}, {1, 0}), two{{1, 2}, {7, 8}};
  EXPECT_EQ(result_of("ScatterElements", {kTwoByThree, fits, two}).first, (std::vector<double>{1, 8, 3, 7, 5, 6}));
}

TEST(OnnxEdges, SizesOfResizeAreAsManyAsItsAxes) {
  const Known image{{1, 1, 2, 2}, {1, 2, 3, 4}}, none{{0}, {}}, scales{{4}, {1, 1, 2, 2}};
  EXPECT_PRED2(has_text, refusal("Resize", {image, none, scales, whole({3}, {1, 1, 2})}), "another number of axes");
  EXPECT_PRED2(has_text, refusal("Resize", {image, none, none}), "another number of axes");
  EXPECT_PRED2(has_text, refusal("Resize", {image, none, {{1}, {1}}, whole({3}, {1, 1, 2})}), "another number of axes");
  EXPECT_EQ(result_of("Resize", {image, none, scales}).second, (Shape{1, 1, 4, 4}));
}

TEST(OnnxEdges, NothingIsDividedByZero) {
  const Known none{{1, 0, 1, 1}, {}};
  const std::vector<OnnxAttribute> huge{int_attribute("blocksize", INT64_C(1) << 32)};
  EXPECT_PRED2(has_text, refusal("DepthToSpace", {none}, huge), "a blocksize of 4294967296");
  EXPECT_PRED2(has_text, refusal("SpaceToDepth", {none}, huge), "a blocksize of 4294967296");
  for (const int64_t size : {INT64_C(0), INT64_C(1) << 62})
    EXPECT_PRED2(has_text, refusal("LRN", {{{1, 2, 1, 1}, {1, 2}}}, {int_attribute("size", size)}), "a size of");
}

TEST(OnnxEdges, EmptyTensorsHaveTheirShape) {
  const auto joined = result_of("Concat", {{{0, 3}, {}}, {{0, 4}, {}}}, {int_attribute("axis", 1)});
  EXPECT_EQ(joined.second, (Shape{0, 7}));
  // Old exports join an empty vector to tensors of any rank.
  EXPECT_EQ(result_of("Concat", {{{0}, {}}, kTwoByThree}, {int_attribute("axis", 0)}).second, (Shape{2, 3}));
  EXPECT_EQ(result_of("ReverseSequence", {{{3, 0}, {}}, whole({0}, {})}).second, (Shape{3, 0}));
}

TEST(OnnxEdges, NotANumberIsOneOfTheDistinctElements) {
  const auto distinct = result_of("Unique", {{{5}, {NAN, 1, NAN, 0, 1}}}).first;
  ASSERT_EQ(distinct.size(), 3U);
  EXPECT_EQ(distinct[0], 0);
  EXPECT_EQ(distinct[1], 1);
  EXPECT_TRUE(std::isnan(distinct[2]));
}

TEST(OnnxEdges, SmallAndLargeNumbersKeepTheirDigits) {
  const auto expect_close = [](const char* op, double (*exact)(double), const std::vector<double>& x) {
    for (const OnnxElement element : {OnnxElement::kFloat, OnnxElement::kDouble}) {
      const bool doubles = element == OnnxElement::kDouble;
      const std::vector<double> y = result_of(op, {{{std::ssize(x)}, x, element}}).first;
      for (size_t i = 0; i < x.size(); ++i) {
        const double of = doubles ? x[i] : static_cast<float>(x[i]);
        EXPECT_NEAR(y[i] / exact(of), 1, doubles ? 1e-13 : 1e-5) << op << " of " << x[i];
      }
    }
  };
  expect_close("Asinh", [](double v) { return std::asinh(v); }, {1e-8, -1e-5, 0.049, 0.051, -1, 30, 1e5, -1e20});
  expect_close("Acosh", [](double v) { return std::acosh(v); }, {1.000001, 1.001, 1.1, 2, 30, 1e5, 1e30});
  expect_close("Atanh", [](double v) { return std::atanh(v); }, {1e-8, -1e-5, 0.049, 0.051, -0.5, 0.99});
  expect_close("Sinh", [](double v) { return std::sinh(v); }, {1e-8, -1e-5, 0.249, 0.251, -1, 20, 89});
  expect_close("Cosh", [](double v) { return std::cosh(v); }, {0, 1e-3, -1, 20, -89});
  EXPECT_EQ(result_of("Atanh", {{{2}, {1, -1}}}).first, (std::vector<double>{INFINITY, -INFINITY}));
}

TEST(OnnxEdges, AZeroKeepsItsSign) {
  EXPECT_EQ(result_of("Reciprocal", {{{2}, {0, -0.0}}}).first, (std::vector<double>{INFINITY, -INFINITY}));
}

TEST(OnnxEdges, WhatHasNoNumbersIsNotMade) {
  const std::vector<OnnxAttribute> strings{int_attribute("dtype", 8)};
  EXPECT_PRED2(has_text, refusal("EyeLike", {kTwoByThree}, strings), "there are no numbers of string");
}

OnnxAttribute reference(std::string name, std::string of) {
  return {.name = std::move(name), .type = OnnxAttribute::kFloat, .reference = std::move(of)};
}

// leaky(x) = x > 0 ? x : slope x, within an If of another function, with a value of one name in both.
TEST(OnnxFunctions, StandForTheirNodes) {
  const auto branch = std::make_shared<OnnxGraph>();
  branch->nodes.push_back({"", "leaky", "own", {"x"}, {"t"}, {reference("slope", "steep")}});
  branch->outputs.push_back({.name = "t", .element = OnnxElement::kFloat});
  const OnnxFunction leaky{.name = "leaky",
      .domain = "own",
      .in = {"x"},
      .out = {"y"},
      .defaults = {float_attribute("slope", 0.01F)},
      .nodes = {{"", "LeakyRelu", "", {"x"}, {"t"}, {reference("alpha", "slope")}}, {"", "Neg", "", {"t"}, {"y"}}}};
  const OnnxFunction choice{.name = "choice",
      .domain = "own",
      .in = {"x", "condition", "omitted"},
      .out = {"y", "x"},
      .nodes = {{"", "If", "", {"condition"}, {"y"},
          {{.name = "then_branch", .type = OnnxAttribute::kGraph, .graph = branch},
              {.name = "else_branch", .type = OnnxAttribute::kGraph, .graph = branch}}}}};
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "a", .element = OnnxElement::kFloat}, {.name = "c", .element = OnnxElement::kBool}};
  model.graph.nodes = {{"", "choice", "own", {"a", "c"}, {"t", "same"}, {float_attribute("steep", 0.5F)}},
      {"", "leaky", "own", {"t"}, {"other"}}};
  for (const char* name : {"t", "same", "other"})
    model.graph.outputs.push_back({.name = name, .element = OnnxElement::kFloat});
  expand_functions(model.graph, {leaky, choice}, [](const std::string& problem) { FAIL() << problem; });
  OnnxNetwork network(model, "functions.onnx");
  Trace trace;
  const TracedValues results = network.trace(trace.graph(),
      {{"a", known_numbers(OnnxElement::kFloat, {3}, {-2, -4, 1})}, {"c", known_numbers(OnnxElement::kBool, {}, {1})}});
  EXPECT_EQ(results.at("t").known->values(), (std::vector<double>{1, 2, -1}));
  EXPECT_EQ(results.at("same").known->values(), (std::vector<double>{-2, -4, 1}));
  EXPECT_NEAR(results.at("other").known->values()[2], 0.01, 1e-6);
}

TEST(OnnxFunctions, ThoseWithoutAnEndAreRefused) {
  const auto refused = [](const std::vector<std::string>& calls) {
    OnnxFunction f{.name = "f", .in = {"x"}, .out = {"y"}};
    for (size_t i = 0; i < calls.size(); ++i) f.nodes.push_back({"", calls[i], "", {"x"}, {"y" + std::to_string(i)}});
    OnnxGraph graph{.nodes = {{"", "f", "", {"x"}, {"y"}}}};
    return error_of([&] { expand_functions(graph, {f}, [](const std::string& problem) { fail_user(problem); }); });
  };
  EXPECT_PRED2(has_text, refused({"f"}), "functions call one another without an end");
  EXPECT_PRED2(has_text, refused({"Neg", "f", "f"}), "functions call one another without an end");
}
}  // namespace
}  // namespace linnet

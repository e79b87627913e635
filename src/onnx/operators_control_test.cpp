// Conditions, loops and scans.
#include <gtest/gtest.h>
#include "engine/exec/interpreter.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace linnet {
namespace {
using Numbers = std::vector<double>;

// Both branches are computed, and the condition chooses.
TEST(OnnxControl, AConditionMayBeComputed) {
  const auto branch = [](const std::string& name, const std::string& op) {
    const auto graph = std::make_shared<OnnxGraph>();
    graph->nodes.push_back({.name = op, .op = op, .in = {"x"}, .out = {"y"}});
    graph->outputs.push_back({.name = "y", .element = OnnxElement::kFloat});
    return OnnxAttribute{.name = name, .graph = graph};
  };
  for (const float sum : {-1.0F, 1.0F}) {
    OnnxModel model;
    model.opsets[""] = 17;
    model.graph.inputs.push_back({.name = "x", .element = OnnxElement::kFloat});
    model.graph.nodes = {
        {.name = "s", .op = "ReduceSum", .in = {"x"}, .out = {"s"}, .attributes = {int_attribute("keepdims", 0)}},
        {.name = "z", .op = "Sub", .in = {"s", "s"}, .out = {"zero"}},
        {.name = "c", .op = "Greater", .in = {"s", "zero"}, .out = {"c"}},
        {.name = "i",
            .op = "If",
            .in = {"c"},
            .out = {"out"},
            .attributes = {branch("then_branch", "Neg"), branch("else_branch", "Abs")}}};
    model.graph.outputs.push_back({.name = "out", .element = OnnxElement::kFloat});
    OnnxNetwork network(model, "if.onnx");
    Trace trace;
    const std::vector<float> x{-3, 3 + sum};
    const TracedValues values{{"x", {.element = OnnxElement::kFloat, .tensor = trace.input("x", {DType::kF32, {2}})}}};
    trace.graph().output("out", network.trace(trace.graph(), values).at("out").tensor);
    const NamedTensors host{{"x", HostTensor({DType::kF32, {2}}, std::span<const float>(x))}};
    EXPECT_EQ(interpret(trace.finish(), host).outputs.at("out").values(),
        (sum > 0 ? Numbers{3, -3 - sum} : Numbers{3, 3 + sum}));
  }
}

OnnxAttribute graph_attribute(const std::string& name, OnnxGraph graph) {
  return {.name = name, .type = OnnxAttribute::kGraph, .graph = std::make_shared<OnnxGraph>(std::move(graph))};
}

std::vector<OnnxValueInfo> named(const std::vector<std::string>& names) {
  std::vector<OnnxValueInfo> infos;
  for (const std::string& name : names) infos.push_back({.name = name, .element = OnnxElement::kFloat});
  return infos;
}

// The results of `names` of a network that reads x.
std::map<std::string, std::vector<double>> computed(
    const OnnxModel& model, const Shape& shape, const std::vector<float>& x, const std::vector<std::string>& names) {
  OnnxNetwork network(model, "loop.onnx");
  Trace trace;
  const TracedValues values{{"x", {.element = OnnxElement::kFloat, .tensor = trace.input("x", {DType::kF32, shape})}}};
  const TracedValues traced = network.trace(trace.graph(), values);
  for (const std::string& name : names) trace.graph().output(name, traced.at(name).tensor);
  const NamedTensors host{{"x", HostTensor({DType::kF32, shape}, std::span<const float>(x))}};
  const NamedTensors results = interpret(trace.finish(), host).outputs;
  std::map<std::string, std::vector<double>> numbers;
  for (const std::string& name : names) numbers[name] = results.at(name).values();
  return numbers;
}

// s doubles in each of three rounds, and what it was is stacked. Where the condition is computed (the sum of s is below
// 10), the rounds after it has failed change nothing.
TEST(OnnxControl, ALoopRunsAsOftenAsItsBoundAndItsConditionSay) {
  for (const bool computed_end : {false, true}) {
    OnnxModel model;
    model.opsets[""] = 17;
    model.graph.inputs = named({"x"});
    model.graph.initializers = {int64_tensor({}, {3}), float_tensor({}, {10})};
    model.graph.initializers[0].name = "rounds", model.graph.initializers[1].name = "ten";
    OnnxGraph body{.inputs = named({"i", "on", "s"})};
    body.nodes = {{.name = "", .op = "Add", .in = {"s", "s"}, .out = {"twice"}}};
    if (computed_end) {
      body.nodes.push_back({.name = "",
          .op = "ReduceSum",
          .in = {"twice"},
          .out = {"sum"},
          .attributes = {int_attribute("keepdims", 0)}});
      body.nodes.push_back({.name = "", .op = "Less", .in = {"sum", "ten"}, .out = {"goes_on"}});
      body.outputs = named({"goes_on", "twice"});
    } else {
      body.nodes.push_back({.name = "", .op = "Identity", .in = {"on"}, .out = {"goes_on"}});
      body.nodes.push_back({.name = "", .op = "Identity", .in = {"s"}, .out = {"before"}});
      body.outputs = named({"goes_on", "twice", "before"});
    }
    OnnxNode loop{.name = "l", .op = "Loop", .in = {"rounds", "", "x"}, .out = {"last"}};
    if (!computed_end) loop.out.push_back("all");
    loop.attributes = {graph_attribute("body", body)};
    model.graph.nodes = {loop};
    model.graph.outputs = named(loop.out);
    const auto results = computed(model, {2}, {1, 2}, loop.out);
    EXPECT_EQ(results.at("last"), (computed_end ? Numbers{4, 8} : Numbers{8, 16}));
    if (!computed_end) {
      EXPECT_EQ(results.at("all"), (Numbers{1, 2, 2, 4, 4, 8}));
    }
  }
}

// Sums of rows from the last to the first; stacked along the second axis.
TEST(OnnxControl, AScanGoesOverThePartsOfAnAxis) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = named({"x"});
  OnnxGraph body{.inputs = named({"sum", "row"})};
  body.nodes = {{.name = "", .op = "Add", .in = {"sum", "row"}, .out = {"next"}},
      {.name = "", .op = "Identity", .in = {"next"}, .out = {"part"}}};
  body.outputs = named({"next", "part"});
  OnnxNode scan{.name = "s", .op = "Scan", .in = {"begin", "x"}, .out = {"last", "all"}};
  scan.attributes = {graph_attribute("body", body), int_attribute("num_scan_inputs", 1),
      ints_attribute("scan_input_directions", {1}), ints_attribute("scan_output_axes", {1})};
  model.graph.nodes = {{.name = "",
                           .op = "Constant",
                           .in = {},
                           .out = {"begin"},
                           .attributes = {tensor_attribute("value", float_tensor({2}, {0, 10}))}},
      scan};
  model.graph.outputs = named(scan.out);
  const auto results = computed(model, {3, 2}, {1, 2, 3, 4, 5, 6}, scan.out);
  EXPECT_EQ(results.at("last"), (Numbers{9, 22}));
  EXPECT_EQ(results.at("all"), (Numbers{5, 8, 9, 16, 20, 22}));
}
}  // namespace
}  // namespace linnet

// If, Loop and Scan (https://onnx.ai/onnx/operators). Their graphs are traced in place, once per run, so that memory,
// gradients and fusion see plain nodes. The number of runs must be known or bounded.
#include <algorithm>
#include <limits>
#include "base/functions.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "onnx/compose.h"
#include "onnx/network.h"

namespace linnet {
namespace {
constexpr int64_t kMostRounds = 4096;

bool is_known(const TracedValue& value) { return value.known || value.initial; }

TracedValue known_truth(bool value) { return known_numbers(OnnxElement::kBool, {}, {value ? 1.0 : 0.0}); }

TracedValue operand(const OnnxNode& node, const TracedValues& values, size_t i) {
  return i < node.in.size() && !node.in[i].empty() ? values.at(node.in[i]) : TracedValue{};
}

// Selects between computed values.
TracedValue chosen(
    Graph& graph, const OnnxNode& node, const TracedValue& condition, const TracedValue& yes, const TracedValue& no) {
  OnnxCall both(node, 1, graph, {condition, yes, no});
  if (both.shape(0).elements() != 1) both.fail("a condition of shape ", both.shape(0).text());
  if (both.shape(1) != both.shape(2) || both.element(1) != both.element(2))
    both.fail("it gives ", both.shape(1).text(), " or ", both.shape(2).text(), ", and which of them is computed");
  const DType dtype = traced_dtype(both.element(1));
  const Tensor result = compose::elementwise(both, {reshape(both.tensor(0, dtype), {}), both.tensor(1), both.tensor(2)},
      [](Number condition, Number yes, Number no) { return select(condition, yes, no); });
  return {.element = both.element(1), .tensor = result};
}
}  // namespace

std::vector<TracedValue> OnnxNetwork::trace_control(Graph& graph, const OnnxNode& node, const TracedValues& values) {
  return node.op == "If"     ? trace_if(graph, node, values)
         : node.op == "Loop" ? trace_loop(graph, node, values)
                             : trace_scan(graph, node, values);
}

std::vector<TracedValue> OnnxNetwork::trace_body(Graph& graph, const OnnxNode& node, const char* name,
    const TracedValues& values, const std::vector<TracedValue>& arguments, size_t results) {
  const OnnxAttribute* body = node.find(name);
  const OnnxCall call(node, 1, graph, {});
  if (!body || !body->graph) call.fail("it has no ", name);
  if (body->graph->inputs.size() != arguments.size())
    call.fail("its graph has ", body->graph->inputs.size(), " inputs, and is given ", arguments.size());
  TracedValues inner = values;
  for (size_t i = 0; i < arguments.size(); ++i) inner[body->graph->inputs[i].name] = arguments[i];
  for (const OnnxTensor& tensor : body->graph->initializers)
    inner[tensor.name] = {.element = tensor.element, .known = std::make_shared<HostTensor>(read_host_tensor(tensor))};
  trace_nodes(graph, body->graph->nodes, inner);
  if (body->graph->outputs.size() < results)
    call.fail("its graph gives ", body->graph->outputs.size(), " results, and ", results, " are wanted");
  return mapped(body->graph->outputs, [&](const OnnxValueInfo& output) { return inner.at(output.name); });
}

// A known condition selects the branch to trace; otherwise both are computed.
std::vector<TracedValue> OnnxNetwork::trace_if(Graph& graph, const OnnxNode& node, const TracedValues& values) {
  const TracedValue condition = operand(node, values, 0);
  if (is_known(condition)) {
    const bool holds = OnnxCall(node, 1, graph, {condition}).number(0, 0) != 0;
    return trace_body(graph, node, holds ? "then_branch" : "else_branch", values, {}, 0);
  }
  std::vector<TracedValue> yes = trace_body(graph, node, "then_branch", values, {}, 0);
  const std::vector<TracedValue> no = trace_body(graph, node, "else_branch", values, {}, 0);
  for (size_t i = 0; i < std::min(yes.size(), no.size()); ++i) yes[i] = chosen(graph, node, condition, yes[i], no[i]);
  return yes;
}

// Operands: the most rounds, the initial condition, the carried values. The body takes the round's number, the
// condition and the carried values; it gives the condition, carried values and values to stack. After a computed
// condition has failed, further rounds leave carried values unchanged.
std::vector<TracedValue> OnnxNetwork::trace_loop(Graph& graph, const OnnxNode& node, const TracedValues& values) {
  const TracedValue most = operand(node, values, 0);
  const OnnxCall call(node, 1, graph, {most});
  if (node.in.size() < 2) call.fail("it has ", node.in.size(), " operands");
  int64_t rounds = std::numeric_limits<int64_t>::max();
  if (call.has(0)) {
    if (!is_known(most)) call.fail("how often it runs is computed by the network");
    const std::vector<int64_t> given = call.ints(0);
    if (given.size() != 1) call.fail("the number of rounds has the shape ", call.shape(0).text());
    rounds = given[0];
  }
  TracedValue goes_on = operand(node, values, 1);
  if (!goes_on.known && !goes_on.tensor.defined()) goes_on = known_truth(true);
  std::vector<TracedValue> carried;
  for (size_t i = 2; i < node.in.size(); ++i) carried.push_back(operand(node, values, i));
  const size_t kept = carried.size(), stacks = node.out.size() - std::min(kept, node.out.size());
  std::vector<std::vector<TracedValue>> given(stacks);
  for (int64_t round = 0; round < rounds; ++round) {
    const bool is_certain = is_known(goes_on);
    if (is_certain && OnnxCall(node, 1, graph, {goes_on}).number(0, 0) == 0) break;
    if (round == kMostRounds || (!is_certain && rounds > kMostRounds))
      call.fail("it may run more than ", kMostRounds, " times");
    if (!is_certain && stacks > 0) call.fail("how many parts it stacks is computed by the network");
    std::vector<TracedValue> arguments{known_whole(round), goes_on};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    const std::vector<TracedValue> results = trace_body(graph, node, "body", values, arguments, 1 + kept + stacks);
    for (size_t i = 0; i < kept; ++i)
      carried[i] = is_certain ? results[1 + i] : chosen(graph, node, goes_on, results[1 + i], carried[i]);
    for (size_t i = 0; i < stacks; ++i) given[i].push_back(results[1 + kept + i]);
    goes_on = is_certain ? results[0] : chosen(graph, node, goes_on, results[0], known_truth(false));
  }
  for (const std::vector<TracedValue>& parts : given) carried.push_back(stacked(graph, node, parts, 0));
  return carried;
}

// Runs the body once for each part of the scanned operands along their axes.
std::vector<TracedValue> OnnxNetwork::trace_scan(Graph& graph, const OnnxNode& node, const TracedValues& values) {
  const std::vector<TracedValue> operands = mapped(node.in.size(), [&](size_t i) { return operand(node, values, i); });
  const OnnxCall call(node, 1, graph, operands);
  if (find_or(model_.opsets, "", 0) < 9) call.fail("its form before opset 9");
  const int64_t scanned = call.integer("num_scan_inputs", 0);
  if (scanned < 1 || scanned > std::ssize(operands)) call.fail("num_scan_inputs of ", scanned);
  const size_t states = operands.size() - static_cast<size_t>(scanned);
  const size_t stacks = node.out.size() - std::min(states, node.out.size());
  const auto list = [&](const char* name, size_t size) {
    std::vector<int64_t> numbers = call.list(name);
    numbers.resize(size, 0);
    return numbers;
  };
  const std::vector<int64_t> axes = list("scan_input_axes", operands.size() - states),
                             backwards = list("scan_input_directions", operands.size() - states),
                             out_axes = list("scan_output_axes", stacks),
                             out_backwards = list("scan_output_directions", stacks);
  int64_t rounds = -1;
  for (size_t i = states; i < operands.size(); ++i) {
    const Shape shape = call.shape(i);
    const int64_t length = shape[call.axis(axes[i - states], shape.rank())];
    if (rounds >= 0 && length != rounds) call.fail("its operands have ", rounds, " and ", length, " parts");
    rounds = length;
  }
  if (rounds > kMostRounds) call.fail("more than ", kMostRounds, " parts");
  std::vector<TracedValue> carried(operands.begin(), operands.begin() + states);
  std::vector<std::vector<TracedValue>> given(stacks);
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<TracedValue> arguments = carried;
    for (size_t i = states; i < operands.size(); ++i) {
      const int64_t part = backwards[i - states] ? rounds - 1 - round : round;
      OnnxNode gather{.name = node.name, .op = "Gather", .in = {"x", "part"}, .out = {"y"}};
      gather.attributes = {int_attribute("axis", axes[i - states])};
      const TracedValue index = known_whole(part);
      arguments.push_back(run_operator(graph, gather, 13, {operands[i], index}, operands[i].known != nullptr)[0]);
    }
    const std::vector<TracedValue> results = trace_body(graph, node, "body", values, arguments, states + stacks);
    std::copy_n(results.begin(), states, carried.begin());
    for (size_t i = 0; i < stacks; ++i)
      given[i].insert(out_backwards[i] ? given[i].begin() : given[i].end(), results[states + i]);
  }
  for (size_t i = 0; i < stacks; ++i) carried.push_back(stacked(graph, node, given[i], out_axes[i]));
  return carried;
}

TracedValue OnnxNetwork::stacked(
    Graph& graph, const OnnxNode& node, const std::vector<TracedValue>& values, int64_t axis) {
  if (values.empty()) OnnxCall(node, 1, graph, {}).fail("it runs no time, and the size of what it stacks is not known");
  const bool known = std::ranges::all_of(values, [](const TracedValue& value) { return value.known != nullptr; });
  OnnxNode unsqueeze{.name = node.name, .op = "Unsqueeze", .in = {"x", "axes"}, .out = {"y"}};
  OnnxNode concat{
      .name = node.name, .op = "Concat", .in = {}, .out = {"y"}, .attributes = {int_attribute("axis", axis)}};
  std::vector<TracedValue> parts;
  for (const TracedValue& value : values) {
    parts.push_back(run_operator(graph, unsqueeze, 13, {value, known_vector({axis})}, value.known != nullptr)[0]);
    concat.in.push_back("x");
  }
  return run_operator(graph, concat, 13, std::move(parts), known)[0];
}
}  // namespace linnet

#include "op_harness.h"
#include <gtest/gtest.h>
#include "engine/passes/passes.h"
#include "isolated_run.h"

namespace linnet::testing {
namespace {
void expect_none(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) ADD_FAILURE() << problem;
}

void check_on_backend(const Graph& graph, const NamedTensors& inputs, const NamedTensors& expected, double tolerance,
    const Backend& backend, const char* what) {
  std::vector<std::string> problems;
  PlannedGraph planned(graph, 1, backend);
  const NamedTensors first = planned.run(inputs);
  compare_close(first, expected, tolerance, what, problems);
  compare_bits(planned.run(inputs), first, "recorded:", problems);
  disturb_backend(true);
  compare_bits(planned.run(inputs), first, "replayed, threads in another order:", problems);
  disturb_backend(false);
  const Graph optimized = optimize(graph.clone(), {.backend = &backend});
  compare_bits(IsolatedRun(optimized, backend).run(inputs), first, "values apart:", problems);
  expect_none(problems);
}
}  // namespace

std::vector<NamedTensors> run_everywhere(const Graph& graph, const NamedTensors& inputs) {
  std::vector<NamedTensors> results;
  for (KernelSet kernels : {KernelSet::kReference, KernelSet::kFast})
    results.push_back(interpret(graph, inputs, {.kernels = kernels}).outputs);
  if (const Backend* backend = tested_backend()) results.push_back(PlannedGraph(graph, 1, *backend).run(inputs));
  return results;
}

double distance(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.type().shape, b.type().shape);
  return tensor_distance(a, b);
}

void check_op(const OpCase& op) {
  const Backend* backend = tested_backend();
  if (!backend) return expect_none(trial_problems(op));
  const Graph exact = trial_graph(op, DType::kF64, op.differentiate);
  const NamedTensors inputs = trial_inputs(exact, op);
  check_on_backend(trial_graph(op, DType::kF32, op.differentiate), in_float32(inputs), interpret(exact, inputs).outputs,
      op.tolerance, *backend, "on the device");
  if (op.bf16_tolerance == 0) return;
  const NamedTensors rounded = rounded_to_bf16(inputs, op);
  NamedTensors close = interpret(exact, rounded).outputs;
  close.erase("loss");  // a sum of roundings over what may be left of it
  check_on_backend(trial_graph(op, DType::kBF16, op.differentiate), in_float32(rounded), close, op.bf16_tolerance,
      *backend, "in bf16 on the device");
}
}  // namespace linnet::testing

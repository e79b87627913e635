#include "op_harness.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "exec/executor.h"
#include "isolated_run.h"
#include "kernels/precision.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "passes/gradient.h"
#include "passes/passes.h"

namespace linnet::testing {
namespace {

std::string input_name(size_t i) { return "x" + std::to_string(i); }
std::string weight_name(size_t i) { return "w" + std::to_string(i); }

bool is_float_input(const OpInput& input) { return !input.integer && !input.byte; }

DType dtype_of(const OpInput& input, DType floats) {
  return input.integer ? DType::kI32 : input.byte ? DType::kU8 : floats;
}

// outputs y0, y1, ...; and with gradients, d0, d1, ... of sum(w_i * y_i) with respect to the float inputs. In bf16 the
// op's own operands and results are, and fp32 around it.
Graph build(const OpCase& op, DType dtype, bool with_gradients) {
  Graph graph;
  std::vector<Tensor> inputs, floats;
  const bool narrow = dtype == DType::kBF16;
  if (narrow) dtype = DType::kF32;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inputs.push_back(graph.input(input_name(i), {dtype_of(op.inputs[i], dtype), op.inputs[i].shape}));
    if (!is_float_input(op.inputs[i])) continue;
    floats.push_back(inputs.back());
    if (narrow && !op.inputs[i].full) inputs.back() = cast(inputs.back(), DType::kBF16);
  }
  std::vector<Tensor> outputs = op.build(graph, inputs);
  for (Tensor& output : outputs)
    if (output.type().dtype == DType::kBF16) output = cast(output, DType::kF32);
  Tensor loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph.output("y" + std::to_string(i), outputs[i]);
    if (!with_gradients || !is_float(outputs[i].type().dtype)) continue;
    const Tensor part = sum_to(outputs[i] * graph.input(weight_name(i), outputs[i].type()), {});
    loss = loss.defined() ? loss + part : part;
  }
  if (!with_gradients) return graph;
  graph.output("loss", loss);
  const std::vector<Tensor> d = gradients(loss, floats);
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  return graph;
}

NamedTensors random_inputs(const Graph& graph, const OpCase& op) {
  std::mt19937_64 random(20240607);
  std::uniform_real_distribution<double> uniform(-1, 1);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    const bool weight = input.name[0] == 'w';
    const OpInput spec = weight ? OpInput{} : op.inputs[std::stoul(input.name.substr(1))];
    HostTensor tensor({dtype_of(spec, DType::kF64), graph.value(input.value).type.shape});
    const auto draw = [&] {
      return spec.low + static_cast<int32_t>(random() % static_cast<uint64_t>(spec.high - spec.low));
    };
    if (spec.integer)
      for (int32_t& v : tensor.as<int32_t>()) v = draw();
    else if (spec.byte)
      for (uint8_t& v : tensor.as<uint8_t>()) v = static_cast<uint8_t>(draw());
    else  // exact in float32, so that both precisions see the same numbers
      for (double& v : tensor.as<double>()) v = static_cast<float>(spec.center + spec.spread * uniform(random));
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

NamedTensors rounded_to_bf16(NamedTensors inputs, const OpCase& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (is_float_input(op.inputs[i]) && !op.inputs[i].full)
      for (double& x : inputs.at(input_name(i)).as<double>()) x = round_to_bf16(static_cast<float>(x));
  return inputs;
}

NamedTensors to_float32(const NamedTensors& inputs) {
  NamedTensors out;
  for (const auto& [name, tensor] : inputs) {
    if (!is_float(tensor.type().dtype)) {
      out[name] = tensor;
      continue;
    }
    HostTensor copy({DType::kF32, tensor.type().shape});
    for (size_t i = 0; i < copy.as<float>().size(); ++i)
      copy.as<float>()[i] = static_cast<float>(tensor.as<double>()[i]);
    out[name] = std::move(copy);
  }
  return out;
}

void check_finite_differences(const OpCase& op, const NamedTensors& inputs) {
  const Graph graph = build(op, DType::kF64, true);
  const auto result = interpret(graph, inputs).outputs;
  size_t d = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!is_float_input(op.inputs[i])) continue;
    const HostTensor& analytic = result.at("d" + std::to_string(d++));
    const int64_t count = op.inputs[i].shape.elements(), step = std::max<int64_t>(1, count / 7);
    for (int64_t j = 0; j < count; j += step) {
      const double h = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        NamedTensors moved = inputs;
        moved[input_name(i)].as<double>()[static_cast<size_t>(j)] += side ? h : -h;
        loss[side] = interpret(graph, moved).outputs.at("loss")[0];
      }
      const double numeric = (loss[1] - loss[0]) / (2 * h);
      EXPECT_NEAR(analytic[j], numeric, 1e-6 * (1 + std::abs(numeric))) << "operand " << i << " element " << j;
    }
  }
}

void expect_close(const NamedTensors& got, const NamedTensors& expected, double tolerance, const char* what) {
  for (const auto& [name, tensor] : expected)
    EXPECT_LE(distance(got.at(name), tensor), tolerance) << what << " " << name;
}

// A graph's plan in memory of its own, on the CPU or on a backend.
class Planned {
 public:
  Planned(const Graph& graph, int threads, const Backend& backend = cpu_backend()) : store_(backend), pool_(threads) {
    for (const GraphInput& input : graph.inputs()) {
      const size_t bytes = graph.value(input.value).type.bytes();
      store_.bind(input.name, {store_.add_region(input.name, MemoryKind::kBatch, bytes), 0}, bytes);
    }
    const SharedRegions shared{store_.add_region("arena", MemoryKind::kActivations, 0),
                               store_.add_region("workspace", MemoryKind::kWorkspace, 0)};
    plan_ = make_plan(optimize(graph.clone()), store_, shared, {.threads = threads});
    store_.allocate();
    executor_.emplace(plan_, store_, shared);
  }

  NamedTensors run(const NamedTensors& inputs) {
    for (const GraphInput& input : plan_.graph.inputs())
      std::memcpy(store_.data(input.name), inputs.at(input.name).data(), inputs.at(input.name).type().bytes());
    executor_->run(pool_);
    NamedTensors outputs;
    for (const GraphOutput& output : plan_.graph.outputs()) {
      const TensorView& view = executor_->output(output.name);
      HostTensor tensor(view.type);
      std::memcpy(tensor.data(), view.data, view.type.bytes());
      outputs[output.name] = std::move(tensor);
    }
    return outputs;
  }

 private:
  Store store_;
  Plan plan_;
  ThreadPool pool_;
  std::optional<Executor> executor_;
};

void expect_same_bits(const NamedTensors& a, const NamedTensors& b, const std::string& what) {
  for (const auto& [name, tensor] : b)
    EXPECT_EQ(std::memcmp(a.at(name).data(), tensor.data(), tensor.type().bytes()), 0) << what << " " << name;
}

}  // namespace

std::vector<NamedTensors> run_everywhere(const Graph& graph, const NamedTensors& inputs) {
  std::vector<NamedTensors> results;
  for (KernelSet kernels : {KernelSet::kReference, KernelSet::kFast})
    results.push_back(interpret(graph, inputs, {.kernels = kernels}).outputs);
  if (const Backend* backend = tested_backend()) results.push_back(Planned(graph, 1, *backend).run(inputs));
  return results;
}

double distance(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.type().shape, b.type().shape);
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < b.type().shape.elements(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
      norm += std::isfinite(b[i]) ? b[i] * b[i] : 0;
      continue;
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference) / (std::sqrt(norm) + 1e-30);
}

namespace {

void check_on_backend(const Graph& graph, const NamedTensors& inputs, const NamedTensors& expected, double tolerance,
                      const Backend& backend, const char* what) {
  Planned planned(graph, 1, backend);
  const NamedTensors first = planned.run(inputs);
  expect_close(first, expected, tolerance, what);
  expect_same_bits(planned.run(inputs), first, "recorded:");
  disturb_backend(true);
  expect_same_bits(planned.run(inputs), first, "replayed, threads in another order:");
  disturb_backend(false);
  const Graph optimized = optimize(graph.clone());
  expect_same_bits(IsolatedRun(optimized, backend).run(inputs), first, "values apart:");
}

}  // namespace

void check_op(const OpCase& op) {
  const Graph exact = build(op, DType::kF64, op.differentiate);
  const NamedTensors inputs = random_inputs(exact, op);
  const NamedTensors expected = interpret(exact, inputs).outputs;
  if (const Backend* backend = tested_backend()) {
    const Graph graph32 = build(op, DType::kF32, op.differentiate);
    check_on_backend(graph32, to_float32(inputs), expected, op.tolerance, *backend, "on the device");
    if (op.bf16_tolerance == 0) return;
    const NamedTensors rounded = rounded_to_bf16(inputs, op);
    NamedTensors close = interpret(exact, rounded).outputs;
    close.erase("loss");  // a sum of roundings over what may be left of it
    return check_on_backend(build(op, DType::kBF16, op.differentiate), to_float32(rounded), close, op.bf16_tolerance,
                            *backend, "in bf16 on the device");
  }
  if (op.differentiate) check_finite_differences(op, inputs);

  // Decomposed before differentiation: the basic ops' gradients check the fused one's.
  const Graph basic = decompose(build(op, DType::kF64, false));
  expect_close(
      interpret(basic, inputs).outputs,
      [&] {
        NamedTensors values;
        for (const auto& [name, tensor] : expected)
          if (name[0] == 'y') values[name] = tensor;
        return values;
      }(),
      1e-10, "decomposition");

  const NamedTensors inputs32 = to_float32(inputs);
  const Graph graph32 = build(op, DType::kF32, op.differentiate);
  expect_close(interpret(graph32, inputs32, {.kernels = KernelSet::kFast}).outputs, expected, op.tolerance, "float32");

  const Graph optimized = optimize(graph32.clone());
  const NamedTensors one = interpret(optimized, inputs32, {.kernels = KernelSet::kFast}).outputs;
  expect_close(one, expected, op.tolerance, "optimized");
  for (int threads : {1, 2, 3})
    expect_same_bits(Planned(graph32, threads).run(inputs32), one, std::to_string(threads) + " threads:");
}

}  // namespace linnet::testing

#include "engine/exec/op_trial.h"
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include "base/numbers.h"
#include "engine/kernels/precision.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::string input_name(size_t i) { return "x" + std::to_string(i); }

DType dtype_of(const OpTrialInput& input, DType floats) {
  return input.integer ? DType::kI32 : input.byte ? DType::kU8 : floats;
}
}  // namespace

Graph trial_graph(const OpTrial& op, DType dtype, bool with_gradients, bool rounded) {
  Graph graph;
  std::vector<Tensor> inputs, floats;
  const bool narrow = dtype == DType::kBF16;
  if (narrow) dtype = DType::kF32;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inputs.push_back(graph.input(input_name(i), {dtype_of(op.inputs[i], dtype), op.inputs[i].shape}));
    if (!op.inputs[i].is_float()) continue;
    floats.push_back(inputs.back());
    if ((narrow || rounded) && !op.inputs[i].full) inputs.back() = cast(inputs.back(), DType::kBF16);
    if (rounded) inputs.back() = cast(inputs.back(), DType::kF32);
  }
  std::vector<Tensor> outputs = op.build(graph, inputs);
  for (Tensor& output : outputs)
    if (output.type().dtype == DType::kBF16) output = cast(output, DType::kF32);
  Tensor loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph.output("y" + std::to_string(i), outputs[i]);
    if (!with_gradients || !is_float(outputs[i].type().dtype)) continue;
    const Tensor part = sum_to(outputs[i] * graph.input("w" + std::to_string(i), outputs[i].type()), {});
    loss = loss.defined() ? loss + part : part;
  }
  if (!with_gradients) return graph;
  graph.output("loss", loss);
  const std::vector<Tensor> d = gradients(loss, floats);
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  return graph;
}

NamedTensors trial_inputs(const Graph& graph, const OpTrial& op) {
  std::mt19937_64 random(20240607);
  std::uniform_real_distribution<double> uniform(-1, 1);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    const bool weight = input.name[0] == 'w';
    const OpTrialInput spec = weight ? OpTrialInput{} : op.inputs[std::stoul(input.name.substr(1))];
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

NamedTensors in_float32(const NamedTensors& tensors) {
  NamedTensors out = tensors;
  for (auto& [name, tensor] : out) {
    if (!is_float(tensor.type().dtype)) continue;
    HostTensor copy({DType::kF32, tensor.type().shape});
    for (size_t i = 0; i < copy.as<float>().size(); ++i)
      copy.as<float>()[i] = static_cast<float>(tensor.as<double>()[i]);
    tensor = std::move(copy);
  }
  return out;
}

NamedTensors rounded_to_bf16(NamedTensors inputs, const OpTrial& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (op.inputs[i].is_float() && !op.inputs[i].full)
      for (double& x : inputs.at(input_name(i)).as<double>()) x = round_to_bf16(static_cast<float>(x));
  return inputs;
}

void compare_close(const NamedTensors& got, const NamedTensors& expected, double tolerance, const std::string& what,
    std::vector<std::string>& problems) {
  for (const auto& [name, tensor] : expected) {
    const double distance = tensor_distance(got.at(name), tensor);
    if (!(distance <= tolerance))
      problems.push_back(what + " " + name + ": the relative distance is " + shortest(distance) +
                         ", expected at most " + shortest(tolerance));
  }
}

void compare_bits(const NamedTensors& got, const NamedTensors& expected, const std::string& what,
    std::vector<std::string>& problems) {
  for (const auto& [name, tensor] : expected)
    if (std::memcmp(got.at(name).data(), tensor.data(), tensor.type().bytes()) != 0)
      problems.push_back(what + " " + name + ": other bits");
}

double tensor_distance(const HostTensor& a, const HostTensor& b) {
  if (a.type().shape != b.type().shape) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < b.type().shape.elements(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same) difference += (a[i] - b[i]) * (a[i] - b[i]);
    if (!same || std::isfinite(b[i])) norm += b[i] * b[i];
  }
  return std::sqrt(difference) / (std::sqrt(norm) + 1e-30);
}

PlannedGraph::PlannedGraph(const Graph& graph, int threads, const Backend& backend, PassOptions passes)
    : store_(backend), pool_(threads) {
  for (const GraphInput& input : graph.inputs())
    store_.declare(input.name, MemoryKind::kBatch, graph.value(input.value).type.bytes());
  const SharedRegions shared = add_shared_regions(store_);
  passes.backend = &backend;
  plan_ = make_plan(optimize(graph.clone(), passes), store_, shared, {.threads = threads});
  store_.allocate();
  executor_.emplace(plan_, store_, shared);
}

NamedTensors PlannedGraph::run(const NamedTensors& inputs) {
  for (const GraphInput& input : plan_.graph.inputs())
    if (const HostTensor& x = inputs.at(input.name); x.type().bytes() > 0)
      std::memcpy(store_.data(input.name), x.data(), x.type().bytes());
  executor_->run(pool_);
  NamedTensors outputs;
  for (const GraphOutput& output : plan_.graph.outputs())
    outputs[output.name] = dense_copy(executor_->output(output.name));
  return outputs;
}

namespace {
void compare_finite_differences(const OpTrial& op, const NamedTensors& inputs, std::vector<std::string>& problems) {
  const Graph graph = trial_graph(op, DType::kF64, true);
  const auto result = interpret(graph, inputs).outputs;
  size_t d = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i].is_float()) continue;
    const HostTensor& analytic = result.at("d" + std::to_string(d++));
    const int64_t count = op.inputs[i].shape.elements(), step = std::max<int64_t>(1, count / 7);
    for (int64_t j = 0; j < count; j += step) {
      const double h = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        NamedTensors moved = inputs;
        moved[input_name(i)].as<double>()[j] += side ? h : -h;
        loss[side] = interpret(graph, moved).outputs.at("loss")[0];
      }
      const double numeric = (loss[1] - loss[0]) / (2 * h);
      if (std::abs(analytic[j] - numeric) <= 1e-6 * (1 + std::abs(numeric))) continue;
      problems.push_back("gradient of operand " + std::to_string(i) + ", element " + std::to_string(j) + ": " +
                         shortest(analytic[j]) + ", and by finite differences " + shortest(numeric));
    }
  }
}

// Activations are stored in bf16, as in training with precision = "bf16".
void compare_stored_in_bf16(const OpTrial& op, const NamedTensors& inputs, std::vector<std::string>& problems) {
  const NamedTensors rounded = rounded_to_bf16(inputs, op), inputs32 = in_float32(rounded);
  NamedTensors expected = interpret(trial_graph(op, DType::kF64, op.differentiate), rounded).outputs;
  expected.erase("loss");  // a sum of roundings over what may be left of it
  const Graph graph = trial_graph(op, DType::kF32, op.differentiate, /*rounded=*/true);
  const PassOptions passes{.precision = Precision::kBf16, .storage_type = DType::kBF16};
  const NamedTensors one = PlannedGraph(graph, 1, cpu_backend(), passes).run(inputs32);
  compare_close(one, expected, op.bf16_tolerance, "stored in bf16", problems);
  for (const int threads : {2, 3})
    compare_bits(PlannedGraph(graph, threads, cpu_backend(), passes).run(inputs32), one,
        "stored in bf16, " + std::to_string(threads) + " threads:", problems);
}
}  // namespace

std::vector<std::string> trial_problems(const OpTrial& op) {
  std::vector<std::string> problems;
  const Graph exact = trial_graph(op, DType::kF64, op.differentiate);
  const NamedTensors inputs = trial_inputs(exact, op);
  const NamedTensors expected = interpret(exact, inputs).outputs;
  if (op.differentiate) compare_finite_differences(op, inputs, problems);
  // Decomposed before differentiation, so that the basic ops' gradients check the fused one's.
  NamedTensors values;
  for (const auto& [name, tensor] : expected)
    if (name[0] == 'y') values[name] = tensor;
  const Graph basic = decompose(trial_graph(op, DType::kF64, false));
  compare_close(interpret(basic, inputs).outputs, values, 1e-10, "decomposition", problems);
  const NamedTensors inputs32 = in_float32(inputs);
  const Graph graph32 = trial_graph(op, DType::kF32, op.differentiate);
  const InterpreterOptions fast{.kernels = KernelSet::kFast};
  compare_close(interpret(graph32, inputs32, fast).outputs, expected, op.tolerance, "float32", problems);
  const NamedTensors one = interpret(optimize(graph32.clone()), inputs32, fast).outputs;
  compare_close(one, expected, op.tolerance, "optimized", problems);
  for (const int threads : {1, 2, 3})
    compare_bits(PlannedGraph(graph32, threads).run(inputs32), one, std::to_string(threads) + " threads:", problems);
  if (op.bf16_tolerance > 0) compare_stored_in_bf16(op, inputs, problems);
  return problems;
}
}  // namespace linnet

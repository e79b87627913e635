#include "onnx/run_file.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "engine/exec/host_tensor.h"
#include "formats/safetensors.h"
#include "models/nn/forward.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

// As a network takes it: floats in f32, bytes as they are, whole numbers in i32, truth values as 0 and 1 in f32.
HostTensor input_values(const SafetensorsEntry& entry) {
  const int64_t count = entry.type.shape.elements();
  if (is_float(entry.dtype)) {
    HostTensor host({DType::kF32, entry.type.shape});
    read_floats(entry.dtype, entry.data, count, host.as<float>().data());
    return host;
  }
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  read_integers(entry.dtype, entry.data, count, numbers.data());
  const auto fill = [&]<class T>(DType dtype, T) {
    HostTensor host({dtype, entry.type.shape});
    std::ranges::transform(numbers, host.as<T>().begin(), [](int64_t number) { return static_cast<T>(number); });
    return host;
  };
  if (entry.dtype == FileDType::kU8) return fill(DType::kU8, uint8_t{});
  if (entry.dtype == FileDType::kBool) return fill(DType::kF32, float{});
  for (const int64_t number : numbers)
    if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max())
      fail_user("input \"" + entry.name + "\" holds " + std::to_string(number) + ", which 32 bits cannot");
  return fill(DType::kI32, int32_t{});
}

std::map<std::string, HostTensor> read_inputs(const OnnxNetwork& network, const std::string& path) {
  const SafetensorsFile file(path, SafetensorsTypes::kAll);
  std::map<std::string, HostTensor> inputs;
  for (const OnnxValueInfo& info : network.inputs()) inputs[info.name] = input_values(file.at(info.name));
  for (const SafetensorsEntry& entry : file.entries())
    if (!inputs.contains(entry.name)) fail_user("'" + path + "': the network has no input \"" + entry.name + "\"");
  return inputs;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

OnnxRunReport run_onnx_file(OnnxNetwork& network, const std::string& inputs, const std::string& outputs,
                            const OnnxRunOptions& options) {
  const std::map<std::string, HostTensor> values = read_inputs(network, inputs);
  OnnxRunReport report;
  const auto function = [&](Trace& trace) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, host] : values) tensors[name] = trace.input(name, host.type());
    for (auto [name, tensor] : network.run(tensors)) {
      if (tensor.type().dtype != DType::kI32) tensor = cast(tensor, DType::kF32);
      trace.graph().output(name, tensor);
      report.outputs.emplace_back(name, tensor.type());
    }
  };
  Forward forward(network, {function}, {.threads = options.threads, .pack_weights = true});
  ThreadPool pool(1);
  forward.load([&](const ParameterTarget& to) { forward.layout().initialize_parameters(0, to.flat, pool); });
  for (const auto& [name, host] : values) {
    const auto bytes = static_cast<size_t>(host.type().bytes());
    forward.set(name, std::span(static_cast<const std::byte*>(host.data()), bytes));
  }
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.repeats; ++i) {
    const double begin = now();
    forward.run();
    seconds.push_back(now() - begin);
  }
  report.seconds = median(std::move(seconds));
  report.memory_bytes = forward.memory_bytes();
  std::vector<SafetensorsTensor> results;
  for (const auto& [name, type] : report.outputs) {
    const bool whole = type.dtype == DType::kI32;
    results.push_back({name, type,
                       whole ? static_cast<const void*>(forward.whole_output(name).data())
                             : static_cast<const void*>(forward.output(name).data())});
  }
  save_safetensors(outputs, results);
  return report;
}

}  // namespace linnet

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/timeline.h"
#include "engine/exec/interpreter.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "formats/safetensors.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace linnet {
namespace {
// Converted for a network: floats to f32, bytes unchanged, whole numbers to i32, truth values to 0 and 1 in f32.
HostTensor input_values(const SafetensorsEntry& entry) {
  const int64_t count = entry.type.shape.elements();
  if (is_float(entry.dtype)) {
    HostTensor host({DType::kF32, entry.type.shape});
    read_floats(entry.dtype, entry.data, count, host.as<float>().data());
    return host;
  }
  std::vector<int64_t> numbers(count);
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
      fail_user("input \"", entry.name, "\" holds ", number, ", which 32 bits cannot");
  return fill(DType::kI32, int32_t{});
}

std::map<std::string, HostTensor> read_inputs(const OnnxNetwork& network, const std::string& path) {
  const SafetensorsFile file(path, SafetensorsTypes::kAll);
  std::map<std::string, HostTensor> inputs;
  for (const OnnxValueInfo& info : network.inputs()) {
    inputs[info.name] = input_values(file.at(info.name));
    const std::string problem = size_problem(info, inputs[info.name].type().shape);
    if (!problem.empty()) fail_user("'", path, "' does not fit", problem);
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (!inputs.contains(entry.name)) fail_user("'", path, "': the network has no input \"", entry.name, "\"");
  return inputs;
}

namespace fs = std::filesystem;

// Tolerances of ONNX's own runner.
constexpr double kAbsolute = 1e-7, kRelative = 1e-3;

std::vector<OnnxTensor> read_tensors(
    const fs::path& folder, const char* kind, const std::vector<OnnxValueInfo>& declared) {
  std::vector<OnnxTensor> tensors;
  for (size_t i = 0; i < declared.size(); ++i) {
    const fs::path path = folder / (std::string(kind) + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(path)) break;
    tensors.push_back(read_onnx_tensor(path.string()));
    // Old cases store bfloat16 as uint16; the declared type counts.
    if (OnnxElement& element = tensors.back().element;
        element == OnnxElement::kUint16 && declared[i].element == OnnxElement::kBFloat16)
      element = OnnxElement::kBFloat16;
  }
  return tensors;
}

// Inputs that `is_known` picks are known while tracing.
TracedValues run_network(
    OnnxNetwork& network, const std::map<std::string, OnnxTensor>& inputs, bool (*is_known)(const OnnxTensor& input)) {
  Trace trace;
  TracedValues values;
  NamedTensors host;
  for (const auto& [name, tensor] : inputs) {
    HostTensor numbers = read_host_tensor(tensor);
    TracedValue& value = values[name];
    value.element = tensor.element;
    if (is_known(tensor)) {
      value.known = std::make_shared<HostTensor>(std::move(numbers));
    } else {
      value.tensor = trace.input(name, numbers.type());
      host[name] = std::move(numbers);
    }
  }
  TracedValues results = network.trace(trace.graph(), values);
  for (const ParameterSpec& spec : network.parameters()) {
    if (!trace.graph().find_input(spec.name)) continue;
    HostTensor numbers({DType::kF32, spec.shape});
    initialize(spec.initializer, spec.name, 0, spec.shape, numbers.as<float>());
    host[spec.name] = std::move(numbers);
  }
  for (const auto& [name, value] : results)
    if (!value.known) trace.graph().output(name, value.tensor);
  if (trace.graph().outputs().empty()) return results;
  const NamedTensors outputs = interpret(optimize(trace.finish()), host, {.kernels = KernelSet::kFast}).outputs;
  for (auto& [name, value] : results)
    if (!value.known) value.known = std::make_shared<HostTensor>(outputs.at(name));
  return results;
}

// Shapes, axes and bounds may have to be known: tries inputs of whole numbers so, at last all inputs.
TracedValues run_some_way(OnnxNetwork& network, const std::map<std::string, OnnxTensor>& inputs) {
  constexpr bool (*kWays[])(const OnnxTensor&) = {[](const OnnxTensor&) { return false; },
      [](const OnnxTensor& input) { return is_whole(input.element) || input.dims.empty(); }};
  for (const auto is_known : kWays) {
    try {
      return run_network(network, inputs, is_known);
    } catch (const Error& error) {
      if (!std::strstr(error.what(), "must be known")) throw;
    }
  }
  return run_network(network, inputs, [](const OnnxTensor&) { return true; });
}

std::string difference(const TracedValue& got, const OnnxTensor& expected) {
  if (got.element != expected.element)
    return "it is of " + element_name(got.element) + ", expected " + element_name(expected.element);
  const HostTensor wanted = read_host_tensor(expected);
  if (!(got.known->type().shape == wanted.type().shape))
    return "its shape is " + got.known->type().shape.text() + ", expected " + wanted.type().shape.text();
  for (int64_t i = 0; i < wanted.type().shape.elements(); ++i) {
    const double a = (*got.known)[i], b = wanted[i];
    const bool close = is_float(expected.element) ? (std::isnan(a) && std::isnan(b)) || a == b ||
                                                        std::abs(a - b) <= kAbsolute + kRelative * std::abs(b)
                                                  : a == b;
    if (!close) return "element " + std::to_string(i) + " is " + shortest(a) + ", expected " + shortest(b);
  }
  return "";
}

// "" or the difference.
std::string run_data_set(OnnxNetwork& network, const fs::path& folder) {
  const std::vector<OnnxTensor> given = read_tensors(folder, "input", network.inputs());
  std::map<std::string, OnnxTensor> inputs;
  for (size_t i = 0; i < given.size(); ++i) inputs[network.inputs()[i].name] = given[i];
  const TracedValues results = run_some_way(network, inputs);
  const std::vector<OnnxTensor> expected = read_tensors(folder, "output", network.outputs());
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string name = network.outputs()[i].name, problem = difference(results.at(name), expected[i]);
    if (!problem.empty()) return "output \"" + name + "\": " + problem;
  }
  return "";
}

void check_types(const OnnxModel& model) {
  for (const auto* values : {&model.graph.inputs, &model.graph.outputs})
    for (const OnnxValueInfo& value : *values) {
      if (value.element == OnnxElement::kUndefined) fail_user("\"", value.name, "\" is no tensor");
      if (!element_dtype(value.element)) fail_user("\"", value.name, "\" holds ", element_name(value.element));
    }
}

std::vector<fs::path> data_sets(const fs::path& folder) {
  std::vector<fs::path> sets;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set_"))
      sets.push_back(entry.path());
  std::ranges::sort(sets);
  return sets;
}

OnnxTestResult run_test(const fs::path& folder) {
  OnnxTestResult result{.name = folder.filename().string(), .op = "several", .detail = {}};
  try {
    OnnxModel model = read_onnx((folder / "model.onnx").string());
    if (model.graph.nodes.size() == 1) result.op = model.graph.nodes[0].op;
    check_types(model);
    OnnxNetwork network(std::move(model), "model.onnx");
    for (const fs::path& set : data_sets(folder))
      if (result.detail.empty()) result.detail = run_data_set(network, set);
    if (!result.detail.empty()) result.outcome = OnnxTestResult::kFail;
  } catch (const Error& error) {
    result.outcome = error.kind() == ErrorKind::kUser ? OnnxTestResult::kUnsupported : OnnxTestResult::kFail;
    result.detail = error.what();
  }
  return result;
}
}  // namespace

OnnxRunReport run_onnx_file(
    OnnxNetwork& network, const std::string& inputs, const std::string& outputs, const OnnxRunOptions& options) {
  const std::map<std::string, HostTensor> values = read_inputs(network, inputs);
  OnnxRunReport report;
  std::set<std::string> taken;  // inputs of the graph
  const auto function = [&](Trace& trace) {
    std::map<std::string, Tensor> tensors;
    TracedValues known;
    for (const OnnxValueInfo& info : network.inputs()) {
      const HostTensor& host = values.at(info.name);
      // One whole number, such as a sampling rate, selects a branch or a size.
      if (is_whole(info.element) && host.type().shape.elements() == 1)
        known[info.name] = known_numbers(info.element, host.type().shape, host.values());
      else tensors[info.name] = trace.input(info.name, host.type()), taken.insert(info.name);
    }
    for (auto [name, tensor] : network.run(tensors, known)) {
      if (tensor.type().dtype != DType::kI32) tensor = cast(tensor, DType::kF32);
      trace.graph().output(name, tensor);
      report.outputs.emplace_back(name, tensor.type());
    }
  };
  Forward forward(network, {function}, {.threads = options.threads, .pack_weights = true});
  ThreadPool pool(1);
  forward.load([&](const ParameterTarget& to) { forward.layout().initialize_parameters(0, to.flat, pool); });
  for (const auto& [name, host] : values) {
    if (!taken.contains(name)) continue;
    const auto bytes = static_cast<size_t>(host.type().bytes());
    forward.set(name, std::span(static_cast<const std::byte*>(host.data()), bytes));
  }
  report.seconds = median(mapped(options.repeats, [&](int64_t) {
    const double begin = now();
    forward.run();
    return now() - begin;
  }));
  report.memory_bytes = forward.memory_bytes();
  if (options.profile) report.nodes = forward.time_nodes(options.repeats);
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

std::vector<OnnxTestResult> run_onnx_tests(const std::string& folder) {
  if (!fs::is_directory(folder)) fail_user("there is no folder '", folder, "'");
  std::set<fs::path> tests;
  const auto add = [&](const fs::path& test) {
    if (!data_sets(test).empty()) tests.insert(test);
  };
  if (fs::exists(fs::path(folder) / "model.onnx")) add(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().filename() == "model.onnx") add(entry.path().parent_path());
  if (tests.empty()) fail_user("'", folder, "' holds no tests: folders with model.onnx and test_data_set_0");
  return mapped(tests, run_test);
}

std::string onnx_test_table(const std::vector<OnnxTestResult>& results) {
  std::map<std::string, std::array<int, 3>> counts;
  std::array<int, 3> all{};
  for (const OnnxTestResult& result : results) ++counts[result.op][result.outcome], ++all[result.outcome];
  const auto line = [](const std::string& name, const std::array<int, 3>& count) {
    return printed("%-28s %4d passed %4d failed %4d unsupported\n", name.c_str(), count[0], count[1], count[2]);
  };
  std::string table;
  for (const auto& [op, count] : counts) table += line(op, count);
  return table + line("all", all);
}
}  // namespace linnet

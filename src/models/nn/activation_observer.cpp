#include "models/nn/activation_observer.h"
#include <algorithm>
#include <vector>
#include "base/error.h"
#include "engine/exec/executor.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {

constexpr const char* kPrefix = "read by ";

// "read by fc.weight", and for further uses of the same layer "read by fc.weight #2".
std::string weight_of(const std::string& output) {
  const std::string name = output.substr(std::string(kPrefix).size());
  return name.substr(0, name.find(' '));
}

// The lengths of the rows of x [B, T, ...]; empty where all positions count.
std::span<const int32_t> lengths_of(const Graph& graph, const Store& store, const Shape& x) {
  if (x.rank() < 3) return {};
  for (const GraphInput& input : graph.inputs())
    if (input.name == "lengths" && graph.value(input.value).type == TensorType{DType::kI32, {x[0]}})
      return {store.as<int32_t>(input.name), static_cast<size_t>(x[0])};
  return {};
}

// Calls visit(first element) for each index of the leading axes of a view, in their order.
template <class Visit>
void for_each_row(const TensorView& view, const Visit& visit) {
  const Shape& shape = view.shape();
  const int last = shape.rank() - 1;
  const int64_t rows = shape.elements(0, last);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0, rest = row;
    for (int axis = last - 1; axis >= 0; rest /= shape[axis--]) offset += rest % shape[axis] * view.strides[axis];
    visit(row, view.as<const float>() + offset);
  }
}

}  // namespace

void ActivationObserver::watch(Graph& graph, const std::string& weight, Tensor x) const {
  std::string name = kPrefix + weight;
  int times = 1;
  for (const GraphOutput& output : graph.outputs())
    times += output.name.starts_with(kPrefix) && weight_of(output.name) == weight;
  if (times > 1) name += " #" + std::to_string(times);
  graph.output(name, x);
}

void ActivationObserver::collect(const Executor& run, const Store& store) {
  if (!collecting_) return;
  const Graph& graph = run.plan().graph;
  for (const GraphOutput& output : graph.outputs()) {
    if (!output.name.starts_with(kPrefix)) continue;
    const TensorView& view = run.output(output.name);
    const Shape& shape = view.shape();
    if (view.type.dtype != DType::kF32 || view.strides[-1] != 1)
      fail_internal("the watched tensor \"" + output.name + "\" has no rows of floats");
    MagnitudeHistogram& histogram = histograms_[weight_of(output.name)];
    const auto lengths = lengths_of(graph, store, shape);
    const int64_t positions = lengths.empty() ? 1 : shape.elements(1, shape.rank() - 1);
    for_each_row(view, [&](int64_t row, const float* values) {
      const bool padding =
          !lengths.empty() && row % positions >= lengths[static_cast<size_t>(row / positions)] * (positions / shape[1]);
      if (!padding) histogram.add({values, static_cast<size_t>(shape[-1])});
    });
  }
}

std::map<std::string, float> ActivationObserver::scales(CalibrationMethod method) const {
  std::map<std::string, float> scales;
  for (const auto& [weight, histogram] : histograms_) {
    const float bound = histogram.bound(method);
    scales[weight] = bound > 0 ? std::max(bound / 127, 1e-30F) : 1;
  }
  return scales;
}

void watch_input(const ParameterSpec& weight, Tensor x) {
  Trace& trace = Trace::current();
  const TraceOptions& options = trace.options();
  if (options.training || !options.layout || !options.layout->observer()) return;
  const WeightQuantization int8{.linear = WeightFormat::kInt8};
  if (int8.choose(weight)) options.layout->observer()->watch(trace.graph(), weight.name, x);
}

}  // namespace linnet

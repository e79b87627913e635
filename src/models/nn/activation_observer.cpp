#include "models/nn/activation_observer.h"
#include <cmath>
#include <limits>
#include "base/fail.h"
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
  const auto lengths = graph.find_input("lengths");
  if (!lengths || graph.value(*lengths).type != TensorType{DType::kI32, {x[0]}}) return {};
  return {store.as<int32_t>("lengths"), static_cast<size_t>(x[0])};
}

// Calls visit(first element) for each index of the leading axes of a view, in order.
template <class Visit> void for_each_row(const TensorView& view, const Visit& visit) {
  const Shape& shape = view.shape();
  const int last = shape.rank() - 1;
  const int64_t rows = shape.elements(0, last);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0, rest = row;
    for (int axis = last - 1; axis >= 0; rest /= shape[axis--]) offset += rest % shape[axis] * view.strides[axis];
    visit(row, view.as<const float>() + offset);
  }
}

constexpr size_t kLevels = 128;  // magnitudes that 8 bits have

// The divergence of the first `used` bins, with all further values clipped to the last one, from themselves when
// equally many neighbors become one level. Within a level only bins that had values get a share.
double divergence(std::span<const int64_t> bins, size_t used, int64_t clipped, int64_t total) {
  const size_t per_level = used / kLevels;
  double sum = 0;
  for (size_t level = 0; level < kLevels; ++level) {
    const auto part = bins.subspan(level * per_level, per_level);
    int64_t count = 0, filled = 0;
    for (const int64_t bin : part) count += bin, filled += bin > 0;
    for (size_t i = 0; i < per_level; ++i) {
      const bool last = level * per_level + i + 1 == used;
      const int64_t bin = part[i] + (last ? clipped : 0);
      if (bin == 0) continue;
      const double p = static_cast<double>(bin) / static_cast<double>(total);
      // Clipped values may fall in a bin that had none of its own.
      const double q =
          part[i] > 0 ? static_cast<double>(count) / static_cast<double>(filled * (total - clipped)) : 1e-12;
      sum += p * std::log(p / q);
    }
  }
  return sum;
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
      fail_internal("the watched tensor \"", output.name, "\" has no rows of floats");
    MagnitudeHistogram& histogram = histograms_[weight_of(output.name)];
    const auto lengths = lengths_of(graph, store, shape);
    const int64_t positions = lengths.empty() ? 1 : shape.elements(1, shape.rank() - 1);
    for_each_row(view, [&](int64_t row, const float* values) {
      const bool padding = !lengths.empty() && row % positions >= lengths[row / positions] * (positions / shape[1]);
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

CalibrationMethod calibration_method(const std::string& name) {
  if (const auto method = enum_value<CalibrationMethod>(name)) return *method;
  fail_user("\"", name, "\" is no way to calibrate; there are minmax, percentile and entropy");
}

void MagnitudeHistogram::widen() {
  for (size_t i = 0; i < kBins / 2; ++i) bins_[i] = bins_[2 * i] + bins_[2 * i + 1];
  std::fill(bins_.begin() + kBins / 2, bins_.end(), 0);
  width_ *= 2;
}

void MagnitudeHistogram::add(std::span<const float> values) {
  float most = 0;
  for (const float value : values) {
    const float magnitude = std::fabs(value);
    if (!(magnitude <= std::numeric_limits<float>::max())) fail_user("an activation is not a finite number");
    most = std::max(most, magnitude);
  }
  count_ += std::ssize(values);
  maximum_ = std::max(maximum_, most);
  // Powers of two, so that bins of different runs agree; the least one keeps 1 / width finite.
  if (width_ == 0 && most > 0) width_ = std::max(std::exp2(std::ceil(std::log2(most)) - 12), 0x1p-120F);
  while (most > width_ * static_cast<float>(kBins)) widen();
  const float inverse = width_ > 0 ? 1 / width_ : 0;
  for (const float value : values) ++bins_[std::min(static_cast<size_t>(std::fabs(value) * inverse), kBins - 1)];
}

float MagnitudeHistogram::bound(CalibrationMethod method) const {
  constexpr double kShare = 0.9999;
  switch (method) {
    case CalibrationMethod::kMinMax: return maximum_;
    case CalibrationMethod::kPercentile: return percentile(kShare);
    case CalibrationMethod::kEntropy: return least_divergence();
  }
  fail_internal("no such way to calibrate");
}

float MagnitudeHistogram::percentile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  int64_t below = 0;
  for (size_t i = 0; i < kBins; ++i) {
    below += bins_[i];
    if (static_cast<double>(below) >= wanted) return std::min(maximum_, width_ * static_cast<float>(i + 1));
  }
  return maximum_;
}

float MagnitudeHistogram::least_divergence() const {
  int64_t clipped = count_;
  size_t best = kBins;
  double least = std::numeric_limits<double>::infinity();
  for (size_t used = 0; used < kBins && width_ > 0;) {
    for (size_t i = 0; i < kLevels; ++i) clipped -= bins_[used + i];
    used += kLevels;
    if (clipped == count_) continue;
    const double found = divergence(bins_, used, clipped, count_);
    if (found < least) least = found, best = used;
    if (clipped == 0) break;
  }
  return std::min(maximum_, width_ * static_cast<float>(best));
}
}  // namespace linnet

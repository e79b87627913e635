// Records what linear layers read while a model runs on examples, for the calibration of static int8.
//
//   auto observer = std::make_shared<ActivationObserver>();
//   ... a model whose layout was made with WeightQuantization{.observer = observer} is evaluated on examples ...
//   std::map<std::string, float> scales = observer->scales(CalibrationMethod::kPercentile);
//
// Linear layers call watch_input() during tracing; what runs the plan (Forward, Trainer) calls collect() after it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>
#include "base/enum_names.h"

namespace linnet {
class Executor;
class Graph;
class Store;
struct ParameterSpec;
struct Tensor;

// How the bound that 8 bits reach up to is chosen. Values beyond it are clipped.
enum class CalibrationMethod : uint8_t {
  kMinMax,      // the largest magnitude: nothing is clipped
  kPercentile,  // 99.99% of the magnitudes lie below it
  kEntropy,     // the distribution changes least when values are rounded to 8 bits (least_divergence())
};
template <> inline constexpr std::array kEnumNames<CalibrationMethod>{"minmax", "percentile", "entropy"};
CalibrationMethod calibration_method(const std::string& name);  // a user error for another word

// Counts magnitudes |x| in kBins bins of equal width. A value beyond the last one doubles the width, so that values may
// come in any order and need not be kept.
class MagnitudeHistogram {
 public:
  static constexpr size_t kBins = 4096;

  void add(std::span<const float> values);  // user error for a value that is not finite
  int64_t count() const { return count_; }
  float maximum() const { return maximum_; }  // exact

  float bound(CalibrationMethod method) const;  // 0 if all values were 0 or there were none
  // The upper edge of the bin up to which this share of all values lies; at most maximum().
  float percentile(double share) const;
  // The bound at which clipping and rounding to 128 magnitudes changes the distribution least, by the Kullback-Leibler
  // divergence (Migacz 2017, "8-bit inference with TensorRT"). At most maximum().
  float least_divergence() const;

 private:
  void widen();

  std::vector<int64_t> bins_ = std::vector<int64_t>(kBins);
  float width_ = 0;  // of a bin; 0: no value above 0 was seen
  float maximum_ = 0;
  int64_t count_ = 0;
};

class ActivationObserver {
 public:
  // Makes `x`, which the layer with this weight reads, an output of the graph.
  void watch(Graph& graph, const std::string& weight, Tensor x) const;
  // Counts the values of all watched tensors of the last run. If the graph has an input "lengths" [B], positions of a
  // watched [B, T, ...] beyond their row's length are padding and left out.
  void collect(const Executor& run, const Store& store);
  void set_collecting(bool collecting) { collecting_ = collecting; }

  const std::map<std::string, MagnitudeHistogram>& histograms() const { return histograms_; }  // by weight
  // By weight, the scale that reaches up to the bound of `method`; 1 if all values were 0.
  std::map<std::string, float> scales(CalibrationMethod method) const;

 private:
  std::map<std::string, MagnitudeHistogram> histograms_;
  bool collecting_ = true;
};

// In an evaluation whose layout has an observer: watches x, which the linear layer reads, if int8 quantizes the layer.
void watch_input(const ParameterSpec& weight, Tensor x);
}  // namespace linnet

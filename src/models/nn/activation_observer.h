// Watches what linear layers read while a model runs on examples: what static int8 is calibrated by.
//
//   auto observer = std::make_shared<ActivationObserver>();
//   ... a model whose layout was made with WeightQuantization{.observer = observer} is evaluated on examples ...
//   std::map<std::string, float> scales = observer->scales(CalibrationMethod::kPercentile);
//
// Linear layers call watch_input() while they are traced; whoever runs an evaluation plan (Forward, Trainer) calls
// collect() after it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace linnet {

class Executor;
class Graph;
class Store;
struct ParameterSpec;
struct Tensor;

// How often magnitudes |x| of which size occur, and the bound that 8 bits should reach up to. The histogram has a fixed
// number of bins of equal width; a value beyond the last one doubles the width, so that values come in any order and
// none is kept.
// How a bound is chosen. Values beyond it are clipped.
enum class CalibrationMethod : uint8_t {
  kMinMax,      // the largest magnitude: nothing is clipped
  kPercentile,  // 99.99% of the magnitudes lie below it
  kEntropy,     // the values as they are and as 8 bits have them are distributed most alike (least_divergence())
};
// "minmax", "percentile" or "entropy"; user error naming them for another.
CalibrationMethod calibration_method(const std::string& name);
const std::vector<std::string>& calibration_methods();

class MagnitudeHistogram {
 public:
  static constexpr size_t kBins = 4096;

  // User error for a value that is not finite.
  void add(std::span<const float> values);
  int64_t count() const { return count_; }
  float maximum() const { return maximum_; }  // exact

  // 0 where all values were 0 or there were none.
  float bound(CalibrationMethod method) const;
  // The upper edge of the bin below which, with it, lies this share of all values; at most maximum().
  float percentile(double share) const;
  // The bound at which clipping and rounding to 128 magnitudes changes the distribution least, by the
  // Kullback-Leibler divergence (Migacz 2017, "8-bit inference with TensorRT"). At most maximum().
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
  // Counts the values of all watched tensors of the run that has just ended. Where the graph has an input "lengths"
  // [B], positions of a watched [B, T, ...] beyond their row's length are padding and left out.
  void collect(const Executor& run, const Store& store);
  // While false, collect() does nothing.
  void set_collecting(bool collecting) { collecting_ = collecting; }

  const std::map<std::string, MagnitudeHistogram>& histograms() const { return histograms_; }  // by weight
  // By weight, the scale that reaches up to the bound that `method` chooses. 1 where all values were 0.
  std::map<std::string, float> scales(CalibrationMethod method) const;

 private:
  std::map<std::string, MagnitudeHistogram> histograms_;
  bool collecting_ = true;
};

// In an evaluation traced with a layout that has an observer: shows it x, which the linear layer with this weight
// reads, if int8 quantizes the layer.
void watch_input(const ParameterSpec& weight, Tensor x);

}  // namespace linnet

// Watches what linear layers read while a model runs on examples: what static int8 is calibrated by.
//
//   auto observer = std::make_shared<ActivationObserver>();
//   ... a model whose layout was made with WeightQuantization{.observer = observer} is evaluated on examples ...
//   std::map<std::string, float> scales = observer->scales(CalibrationMethod::kPercentile);
//
// Linear layers call watch_input() while they are traced; whoever runs an evaluation plan (Forward, Trainer) calls
// collect() after it.
#pragma once
#include <map>
#include <string>
#include "models/nn/magnitude_histogram.h"

namespace linnet {

class Executor;
class Graph;
class Store;
struct ParameterSpec;
struct Tensor;

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

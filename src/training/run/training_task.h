// A model and its data, as the training loop (training_run.cpp) sees them.
#pragma once
#include "config/config.h"
#include "data/examples/batch.h"
#include "data/metrics/class_report.h"
#include "distributed/comm/agreement.h"
#include "training/run/memory_report.h"
#include "training/trainer/resident.h"

namespace linnet {
struct PretrainedModel;  // models/families/pretrained.h

struct Evaluation {
  double loss = 0;                                      // mean over `items`
  int64_t items = 0;                                    // target tokens, or images
  std::vector<std::pair<std::string, double>> metrics;  // by names that the configuration's `metric` may have
  std::vector<std::string> samples;                     // some outputs for the inputs
  std::optional<ClassReport> classes = {};              // of classifiers

  double metric(const std::string& name) const;  // internal error if there is none
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual Trainer& trainer() = 0;
  virtual const Store& store() const = 0;
  virtual const MemoryForecast& forecast() const = 0;
  // Training batches; resident() is non-null if they can be rows of a device-resident dataset.
  virtual BatchSource& batches() = 0;
  virtual ResidentSteps* resident() { return nullptr; }

  // Initial weights, from the seed or a model folder. Where ranks share the layers they are drawn, and
  // load_divided_weights() (training/run/run_checkpoints.cpp) reads them.
  virtual void initialize() { trainer().state().initialize(); }
  // The initial model folder's model; null: none.
  virtual const PretrainedModel* starts_from() const { return nullptr; }
  // Evaluates the validation examples; the result does not depend on the number of ranks.
  virtual Evaluation evaluate(const SharedWork& ranks) = 0;
  // Saves what the trained model needs beside its weights: tokenizers, class names.
  virtual void save_assets(const std::string& folder) const = 0;

  void take_memory() const { store().touch(); }
};
}  // namespace linnet

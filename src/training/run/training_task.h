// What a run trains and on what: all that the training loop (training_run.cpp) knows of model and data.
#pragma once
#include "config/config.h"
#include "data/examples/batch.h"
#include "data/metrics/class_report.h"
#include "distributed/comm/agreement.h"
#include "training/run/memory_report.h"
#include "training/trainer/resident.h"

namespace linnet {

struct PretrainedModel;  // models/families/pretrained.h

// How good a model is on a set of examples.
struct Evaluation {
  double loss = 0;                                      // mean over `items`
  int64_t items = 0;                                    // target tokens, or images
  std::vector<std::pair<std::string, double>> metrics;  // by the names `metric` in the configuration may have
  std::vector<std::string> samples;                     // a few lines of what the model makes of its inputs
  std::optional<ClassReport> classes = {};              // of classifiers

  double metric(const std::string& name) const;  // internal error when there is none
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual Trainer& trainer() = 0;
  virtual const Store& store() const = 0;
  virtual const MemoryForecast& forecast() const = 0;
  // The batches to train on; where they can be rows of data on the device, resident() trains on those.
  virtual BatchSource& batches() = 0;
  virtual ResidentSteps* resident() { return nullptr; }

  // Weights to start from, drawn from the seed or read from a model folder. Where ranks share the layers of a model
  // they are drawn, and load_divided_weights() (training/run/run_checkpoints.cpp) reads them.
  virtual void initialize() { trainer().state().initialize(); }
  // The model of that folder; null: none.
  virtual const PretrainedModel* starts_from() const { return nullptr; }
  // On the validation examples, with the weights evaluation uses: the same on all ranks and for any number of them.
  virtual Evaluation evaluate(const SharedWork& ranks) = 0;
  // What it takes beside the weights to use the trained model: tokenizers, names of classes.
  virtual void save_assets(const std::string& folder) const = 0;

  void take_memory() const { store().touch(); }
};

}  // namespace linnet

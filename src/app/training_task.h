// What a run trains and on what. The training loop (training_run.cpp) knows nothing else of model and data; a kind of
// task is one implementation of this.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/memory_report.h"
#include "config/config.h"
#include "train/trainer.h"

namespace linnet {

// How good a model is on a set of examples.
struct Evaluation {
  double loss = 0;                                      // mean over `items`
  int64_t items = 0;                                    // target tokens, or images
  std::vector<std::pair<std::string, double>> metrics;  // by the names `metric` in the configuration may have
  std::vector<std::string> samples;                     // a few lines of what the model makes of its inputs

  double metric(const std::string& name) const;  // internal error when there is none
};

// The batch that was put where the graphs read it.
struct LoadedBatch {
  int shape;  // of the trainer's
  int64_t epoch, index;
  bool last_of_epoch;
};

// A step that was done, and on which batch.
struct DoneStep {
  LoadedBatch batch;
  StepReport report;
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual Trainer& trainer() = 0;
  virtual const Store& store() const = 0;
  virtual const MemoryForecast& forecast() const = 0;
  virtual int64_t shape_count() const = 0;
  virtual int64_t batches_per_epoch() const { return 0; }  // 0: epochs differ

  // Weights to start from, drawn from the seed or read from a model folder.
  virtual void initialize() { trainer().initialize(); }
  virtual LoadedBatch next_batch() = 0;
  virtual void seek(int64_t epoch, int64_t batch) = 0;  // next_batch() will load this one
  // Where the data lie on the device, steps need no host between them: how many the task does at once, else 0.
  virtual int64_t chunk_steps() const { return 0; }
  // Does the steps from `first_step` on, one for each of `rates`, or the first of these, up to the end of an epoch at
  // most. When a report is not finite, its batch and Trainer::set_step's inputs are in place.
  virtual std::vector<DoneStep> train_chunk(std::span<const float> rates, int64_t first_step);
  virtual Evaluation evaluate() = 0;  // on the validation examples, with the weights evaluation uses
  // What it takes beside the weights to use the trained model: tokenizers, names of classes.
  virtual void save_assets(const std::string& folder) const = 0;

  void take_memory() const { store().touch(); }
};

// Plans and binds everything; takes no planned memory yet. `from`: a run folder whose assets are taken instead of made
// anew; empty: none. Throws Error(kUser), with the figures, for what the machine cannot hold.
std::unique_ptr<TrainingTask> make_training_task(const Config& config, const std::string& from);

}  // namespace linnet

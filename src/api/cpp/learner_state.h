// What a Learner holds.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/cpp/learner_options.h"
#include "linnet/learner.h"
#include "training/trainer/trainer.h"

namespace linnet {

struct Learner::State {
  State(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options);

  // One batch shape: what the batches have, and what of it the loss uses.
  struct BatchKind {
    InputTypes types, used;
    std::vector<std::string> outputs;  // of evaluation
    int number = -1;                   // the trainer's
    bool trained = false;
  };

  std::atomic<bool> busy = false;  // a step or a prediction runs

  LossFunction traced(const InputTypes* types) const;
  void add_kind(const InputTypes* types, bool trained);
  void plan();

  // The shape that a batch has; Error(kUser) when there is none. `trained`: of those that are trained on.
  const BatchKind& kind_of(const Arrays& batch, bool trained) const;
  // The smallest shape that a batch fits into, which may lack inputs and rows.
  const BatchKind& kind_for(const Arrays& batch) const;
  void load(const Arrays& batch, const BatchKind& kind) const;
  // Checks what a step is given.
  void check_step(double rate, size_t micro_batches) const;
  StepResult finish_step(const StepReport& report, const BatchKind& kind);
  Arrays outputs_of(const BatchKind& kind, int64_t rows) const;
  const ParameterSlot& slot_of(const std::string& name) const;

  const Module* model;
  TracedLoss loss;
  const LearnerOptions options;
  const bool explicit_types;  // the loss declares its inputs itself
  const TrainerOptions trainer_options;
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  std::vector<std::unique_ptr<BatchKind>> kinds;
  std::map<std::string, size_t> capacities;  // bytes of each input
  std::unique_ptr<Trainer> trainer;
  int64_t steps = 0;
  const BatchKind* last_trained = nullptr;  // what the gradient of the last step belongs to
  int64_t last_count = 0;
  Arrays last_outputs;
};

}  // namespace linnet

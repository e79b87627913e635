// The shortest way to train a custom model: a module, a loss and arrays. A SingleShapeLearner owns the memory, one
// Trainer and one batch shape; programs with buckets, evaluation or decoding use Trainer and Store directly.
//
//   SingleShapeLearner learner(net, [&](Trace& trace) -> Loss { ... trace.input("x", {...}) ... });
//   learner.set<float>("x", {0, 1});
//   StepReport report = learner.step(0.02);
#pragma once
#include "training/trainer/resident.h"

namespace linnet {
class SingleShapeLearner {
 public:
  // Traces the loss, plans, allocates and draws the initial parameters. Model and loss must outlive the learner. Throws
  // Error(kShape) naming line and module. With resident data there are resident() steps beside step(). `groups`:
  // parameters that are frozen or trained with other options.
  SingleShapeLearner(const Module& model, LossFunction loss, const TrainerOptions& options = {},
      const ResidentOptions& resident = {}, std::span<const ParameterGroup> groups = {});

  // Fills an input that the loss declared. User error if name, type or size do not match.
  template <class T> void set(const std::string& input, std::span<const T> values) {
    std::copy(values.begin(), values.end(), static_cast<T*>(slot(input, sizeof(T) * values.size())));
  }
  template <class T> void set(const std::string& input, std::initializer_list<T> values) {
    set(input, std::span<const T>(values.begin(), values.size()));
  }

  StepReport step(double learning_rate) { return trainer_->step(shape_, learning_rate, ++steps_); }
  // See Trainer::submit.
  SubmittedStep submit(double learning_rate) { return trainer_->submit(shape_, learning_rate, ++steps_); }
  StepReport collect(const SubmittedStep& step) const { return trainer_->collect(step); }
  double evaluate();  // mean loss, without dropout

  Trainer& trainer() { return *trainer_; }
  const Store& store() const { return store_; }
  const SharedRegions& shared() const { return shared_; }
  ResidentSteps& resident() { return *resident_; }
  size_t memory_bytes() const { return store_.total_bytes(); }  // never grows
  // A parameter's values by name, such as "hidden.weight".
  std::span<float> parameter(const std::string& name);

 private:
  void* slot(const std::string& input, size_t bytes);

  ParameterLayout layout_;
  Store store_;
  SharedRegions shared_;
  std::map<std::string, size_t> inputs_;  // bytes
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ResidentSteps> resident_;
  int shape_ = 0;
  int64_t steps_ = 0;
};
}  // namespace linnet

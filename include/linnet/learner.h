// Trains a model: a module, a loss, and data. Everything is planned when a learner is constructed: its memory is taken
// then, and steps allocate nothing.
//
//   Learner learner(net, [&](Tracer& trace) -> Loss {
//     const Tensor logits = net(trace.input("images")), labels = trace.input("labels");
//     trace.output("logits", logits);
//     return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
//   }, loader.shapes(), {.optimizer = AdamW{}, .device = "cpu"});
//   learner.fit(loader, {.epochs = 3, .rate = 1e-3});
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "linnet/arrays.h"
#include "linnet/dataset.h"
#include "linnet/metrics.h"
#include "linnet/module.h"
#include "linnet/optimizer.h"
#include "linnet/schedule.h"
#include "linnet/tracer.h"

namespace linnet {
class Learner;

// How a Learner trains. Throws Error(kUser) in the learner's constructor for numbers out of range.
struct LearnerOptions {
  // Sgd, Adam or AdamW with its numbers.
  Optimizer optimizer = Adam{};
  // The gradient's norm is at most this; 0: any.
  double clip_norm = 0;
  // Decay of a moving average of the weights, which evaluation and saved models take; 0: none. After step t it is at
  // most (1 + t) / (10 + t), so that early weights are soon forgotten.
  double average_decay = 0;
  // Micro-batches of a step. Their losses and counts add up, so that the step is that of one larger batch.
  int64_t accumulate = 1;
  // What products multiply in: "fp32", "bf16" (fp32 on a CPU without it) or, on a GPU, "tf32"; on the CPU "int8"
  // multiplies 8-bit numbers in linear layers and is "bf16" elsewhere, and "fp16" rounds operands to fp16 and scales
  // the loss by 2^16, which is halved where gradients overflow.
  std::string precision = "fp32";
  // In what type activations are stored. "auto": with precision = "bf16" in bf16, where the machine multiplies in bf16,
  // else in fp32; "fp32": always.
  std::string storage = "auto";
  // "cpu", "cuda" or "cuda:N".
  std::string device = "cpu";
  // Of the CPU; 0: as many as the process may use. The result does not depend on it.
  int threads = 0;
  // Of initial weights and dropout.
  uint64_t seed = 1;
  // The most bytes to plan; layers are computed again in the backward pass until the step fits. Layers are Sequential's
  // parts, and those of a ModuleList whose calls begin with a ModuleScope. 0: no limit.
  uint64_t memory = 0;
  // Parameters that are frozen, or trained otherwise than the options above say.
  std::vector<TrainingGroup> groups = {};
  // False: only evaluation and prediction; no gradients and no moments.
  bool training = true;
  // Batch shapes that are evaluated and not trained on, besides those trained on.
  std::vector<InputTypes> evaluation_shapes = {};
  // The learner whose weights this one trains or runs, without any of its own: several losses over one module, each
  // with an optimizer and frozen groups of its own, and predictions by several threads. Both have the same module and
  // device, weights in fp32 and no moving average, and that learner outlives this one. Learners that share weights may
  // run at once only where none of them trains.
  const Learner* weights = nullptr;
};

// The learning rate of each step, from 1 on: a number, a Schedule or a function of the step.
class Rate {
 public:
  // The same in every step.
  Rate(double rate);  // NOLINT: implicit
  // See Schedule.
  Rate(const Schedule& schedule);  // NOLINT: implicit
  // Of the program.
  Rate(std::function<double(int64_t step)> rate);  // NOLINT: implicit
  // Of one step, counted from 1.
  double operator()(int64_t step) const { return rate_(step); }

 private:
  std::function<double(int64_t)> rate_;
};

// What Learner::evaluate() computes.
struct Evaluation {
  // The mean loss.
  double loss = 0;
  // What it is the mean of: samples or tokens.
  int64_t count = 0;
  // The metrics by name.
  std::map<std::string, double> metrics = {};
};

// What is known of a training step after it, all its micro-batches together.
struct StepResult {
  // Mean over the count of the loss.
  double loss = 0;
  // Euclidean norm of the gradient of the mean loss, before clipping.
  double grad_norm = 0;
  // The count: samples or tokens.
  int64_t count = 0;
  // Whether loss and norm are finite; if not, the parameters were left as they were. (Statistics of batch norms take no
  // number that is not finite.)
  bool finite = true;
  // Whether the step was left out because a gradient overflowed in fp16: the next ones have a smaller loss scale.
  bool skipped = false;
};

// What fit() tells after a step or an epoch.
struct FitEvent {
  // Steps so far, those of earlier calls included.
  int64_t step = 0;
  // From 0.
  int64_t epoch = 0;
  // Of the step, or of the last step of the epoch.
  StepResult result = {};
  // Mean loss of the epoch's steps so far, weighted by their counts.
  double mean_loss = 0;
  // The learning rate of the step.
  double rate = 0;
  // Of the validation data, after an epoch.
  std::optional<Evaluation> evaluation = {};
};

// How fit() trains.
struct FitOptions {
  // How often all data are gone through, from where the loader is; 0: once, or as often as max_steps take.
  int64_t epochs = 0;
  // Ends after so many steps of this call; 0: after the epochs.
  int64_t max_steps = 0;
  // The learning rate.
  Rate rate = 1e-3;
  // Evaluated after each epoch.
  Loader* validation = nullptr;
  // Of the validation data.
  std::vector<Metric> metrics = {};
  // Stops when the validation loss has not become better for so many epochs, and returns to the weights of the best; 0:
  // never.
  int64_t patience = 0;
  // Hears every step; false stops.
  std::function<bool(const FitEvent&)> on_step = {};
  // Hears every epoch, with the evaluation; false stops.
  std::function<bool(const FitEvent&)> on_epoch = {};
  // Called before each batch of the validation data; what it throws ends fit().
  std::function<void()> before_validation_batch = {};
};

// What fit() has done.
struct FitReport {
  // Of this call.
  int64_t steps = 0;
  // Of this call, the last one perhaps not whole.
  int64_t epochs = 0;
  // Mean loss of the last epoch's steps.
  double loss = 0;
  // The best evaluation of the validation data by its loss, if there are any.
  std::optional<Evaluation> best = {};
  // Why it ended: "epochs", "max_steps", "patience" or "callback".
  std::string reason = {};
};

// Which of a file's tensors a parameter is read from, where names or layouts differ. The first rule whose pattern a
// parameter matches counts; parameters without one are read from the tensor of their name.
struct LoadRule {
  // Of parameters; '*' stands for any characters.
  std::string parameter;
  // Of the file, '*' standing for the same characters as there. Several are stacked along the first axis.
  std::vector<std::string> tensors;
  // Whether matrices are [in, out] in the file.
  bool transpose = false;
  // The parameter is as many rows of the file's tensor as it has, from this one on. Empty: it is all of it.
  std::optional<int64_t> first_row = {};
};

// How a file has the filters of convolutions.
enum class FilterLayout {
  automatic,       // as the file says or the shapes show; an Error(kUser) where both would fit
  channels_last,   // [out, height, width, in], as Linnet has them
  channels_first,  // [out, in, height, width], as PyTorch has them
};

// How load() compares a file with the model.
struct LoadOptions {
  // An Error(kUser) unless the file has every parameter, in its shape, and nothing else. Else what fits is taken.
  bool strict = true;
  // Put before each name of the file, as where the file is a model that became a part: "encoder.".
  std::string prefix = {};
  // Of parameters with three or four axes. Files that save() wrote say what they have.
  FilterLayout filters = FilterLayout::automatic;
  // Renames, stacks, splits and transposes; names of the file as they stand there, without the prefix.
  std::vector<LoadRule> rules = {};
};

// What load() has done, as names of parameters or of the file's tensors.
struct LoadReport {
  // Parameters that the file had.
  std::vector<std::string> taken = {};
  // Parameters that keep their values.
  std::vector<std::string> fresh = {};
  // Tensors of the file that the model has no parameter for.
  std::vector<std::string> unused = {};
  // Parameters that keep their values since the file's are of another shape.
  std::vector<std::string> different = {};
  // Parameters that were taken with their axes in another order: filters with channels first, transposed matrices.
  std::vector<std::string> turned = {};
};

// What is planned of one kind of memory.
struct MemoryUse {
  // "parameters", "optimizer", "activations", ...
  std::string kind;
  // All bytes of that kind.
  size_t bytes;
};

// What a learner would take, and which part of it for what.
struct MemoryPlan {
  // Of everything, as Learner::memory_bytes().
  size_t bytes = 0;
  // By kind, as Learner::memory().
  std::vector<MemoryUse> kinds = {};
};

// What a learner of a loss that declares its inputs would take, without taking it. Throws as the learner's constructor
// does.
MemoryPlan plan(const Module& model, TracedLoss loss, const LearnerOptions& options = {});
// The same for several batch shapes.
MemoryPlan plan(
    const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options);
// The most rows of a batch with which a learner takes no more than `bytes`, all shapes being made larger or smaller
// alike: an input has as many rows where its first axis is the longest first axis of the shape. 0: not even one row.
int64_t largest_batch(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, size_t bytes,
    const LearnerOptions& options = {});

// A model with its optimizer and all of its memory. One thread uses a learner at a time; several learners may be used
// by several threads.
class Learner {
 public:
  // For a loss that declares its inputs with their types: one batch shape. Traces, plans, takes the memory and draws
  // the initial parameters; afterwards neither the model nor the loss is needed. Throws Error(kShape) naming line
  // and module when shapes do not fit, Error(kUser) for options, names and modules that make no sense, Error(kSystem)
  // when the memory or the device cannot be had.
  Learner(const Module& model, TracedLoss loss, const LearnerOptions& options = {});
  // For several batch shapes: `shapes` are those of Loader::shapes(), and the loss takes them by trace.input(name).
  Learner(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options);
  // The same with the default options; a template, so that {.accumulate = 2} and {} are options and no shapes.
  template <class Shapes = std::vector<InputTypes>>
  requires std::same_as<Shapes, std::vector<InputTypes>> Learner(
      const Module& model, TracedLoss loss, const Shapes& shapes)
      : Learner(model, std::move(loss), shapes, LearnerOptions{}) {}
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  // Takes everything; of the other one, which can only be destroyed or assigned to, every use is an Error(kUser). Not
  // while another learner shares the weights of the one that is assigned to.
  Learner(Learner&& other) noexcept;
  // The same.
  Learner& operator=(Learner&& other) noexcept;
  // Frees the memory.
  ~Learner();

  // Trains on the batches of a loader. Throws Error(kNumeric), naming line and module, when a loss is not finite.
  FitReport fit(Loader& loader, const FitOptions& options);

  // One step on a batch, whose types are one of the shapes. Throws Error(kUser) for another batch, for a rate that is
  // not finite or negative, when steps accumulate several micro-batches, and for a count of the loss that is negative
  // or no whole number. A loss that is not finite leaves the parameters as they were; see StepResult::finite and
  // diagnose().
  StepResult step(const Arrays& batch, double rate);
  // One step of several micro-batches, LearnerOptions::accumulate of them, which may differ in shape.
  StepResult step(std::span<const Arrays> micro_batches, double rate);
  // One step on the values given by set(); for a learner of one shape. Throws Error(kUser) when an input was not set.
  StepResult step(double rate);
  // Where the first NaN or infinity of the last step came up: "net.cpp:6: log (in head)"; empty when all numbers were
  // finite. It runs the step again, node by node; call it before anything else runs. Throws Error(kUser) when no step
  // was taken or evaluation followed.
  std::string diagnose() const;
  // Fills an input that the loss declared; int64_t an i32 input, bool a u8 input. Throws Error(kUser) when there is
  // none of that name, type and size, and where an integer does not fit.
  template <class T> void set(const std::string& input, std::span<const T> values) { set_values<T>(input, values); }
  // The same from a vector.
  template <class T> void set(const std::string& input, const std::vector<T>& values) { set_values<T>(input, values); }
  // The same from a list.
  template <class T> void set(const std::string& input, std::initializer_list<T> values) {
    set(input, std::span<const T>(values.begin(), values.size()));
  }
  // The same from bytes.
  void set_bytes(const std::string& input, DType dtype, std::span<const std::byte> bytes);

  // The mean loss of the values given by set(), without dropout. Throws Error(kUser) when an input was not set.
  double evaluate();
  // Loss and metrics of all batches of one epoch, without dropout, on the weights that are saved. The loader begins the
  // epoch anew and is left where it was. Throws Error(kUser) when a metric misses an output, and when the loss
  // counts rows that only pad the last batch; see Tracer::row_mask(). Throws Error(kNumeric) when it counts none at
  // all. What before_batch() throws ends it.
  Evaluation evaluate(
      Loader& loader, const std::vector<Metric>& metrics = {}, const std::function<void()>& before_batch = {});
  // Runs the model without training: all outputs that the loss names, and "loss_sum" and "token_count". A batch may
  // have fewer rows than a shape (outputs are cut to them), and may leave out inputs, such as labels; outputs that
  // depend on them are left out. Random numbers follow from `number`, of the batch. Throws Error(kUser) when no shape
  // fits, when arrays have different numbers of rows, and when every output that the loss names depends on an input
  // that is not there.
  Arrays predict(const Arrays& batch, int64_t number = 0);
  // An f32 output of the last evaluate(), predict() or step(), where steps keep it (OutputOptions::training); valid
  // until the next call. Throws Error(kUser) when there is none of that name.
  std::span<const float> output(const std::string& name) const;

  // A parameter's values by name, "hidden.weight". Valid as long as the learner. With a device, a copy of the host;
  // push() takes changes there.
  std::span<float> parameter(const std::string& name);
  // Makes changes of parameter() known: to the device, and to the moving average.
  void push();
  // The gradient of the mean loss in the last step, before clipping, by the parameter's name. Throws Error(kUser)
  // before the first step, for a frozen parameter, when steps accumulate, and where the step has used the gradient's
  // memory for something else.
  std::vector<float> gradient(const std::string& name);
  // What is known of all parameters, in the order in which they are saved.
  std::vector<ParameterSpec> parameters() const;

  // Writes the weights that evaluation takes, by name, as safetensors. `type`: of their elements, "fp32", "bf16" or
  // "fp16", in half the bytes, to which values are rounded; load() reads each. Throws Error(kUser) for another one.
  void save(const std::string& path, const std::string& type = "fp32") const;
  // Reads weights by name from a safetensors file of any floats, or one of torch.save() (.bin, .pt, .pth). Throws
  // Error(kUser) naming the file when it cannot be read or, if strict, does not fit; then no parameter is changed.
  LoadReport load(const std::string& path, const LoadOptions& options = {});
  // Writes all that the next steps follow from: weights, moments, the number of steps, and where a loader is.
  void save_state(const std::string& path, const LoaderPosition& position = {}) const;
  // Reads it back into a learner that is constructed alike; the steps that follow have the bits that they would have
  // had. Throws Error(kUser) for a state of another model, optimizer, seed or other groups. Of a learner that shares
  // weights, the state has none.
  LoaderPosition load_state(const std::string& path);

  // Steps so far.
  int64_t steps() const;
  // All memory that there will ever be, known before the first step.
  size_t memory_bytes() const;
  // The same by kind.
  std::vector<MemoryUse> memory() const;

 private:
  template <class T, class Values> void set_values(const std::string& input, const Values& values) {
    const auto kept = stored<T>(input, values);
    set_bytes(input, dtype_of<Stored<T>>(), std::as_bytes(std::span(kept)));
  }
  friend struct LearnerAccess;
  friend MemoryPlan plan(const Module&, TracedLoss, const LearnerOptions&);
  friend MemoryPlan plan(const Module&, TracedLoss, const std::vector<InputTypes>&, const LearnerOptions&);
  struct State;
  State& state() const;             // throws when it has been moved from
  void begin(const Module& model);  // takes the memory and gives parameters their values
  std::unique_ptr<State> state_;
};
}  // namespace linnet

// A Learner's state.
#pragma once
#include "linnet/learner.h"
#include "training/trainer/trainer.h"

namespace linnet {
// A Learner's options as the trainer takes them. Error(kUser): values out of range, missing device. `weights`: store of
// the learner that shares its weights, or null.
TrainerOptions trainer_options(const LearnerOptions& options, const Store* weights);
std::vector<ParameterGroup> parameter_groups(const LearnerOptions& options);

// The graph input that says which rows of a batch are samples.
constexpr const char* kRowMask = "row_mask";

// Names of graph inputs that the learner or the trainer fills.
bool is_reserved(const std::string& name);
int64_t most_rows(const InputTypes& types);  // the largest first size; 0 without any
InputTypes declared(const Graph& graph);     // inputs that are not reserved

struct Learner::State {
  // Plans; no memory is taken yet.
  State(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options);
  void allocate();

  // A batch shape: the arrays, and those that the loss uses.
  struct BatchKind {
    InputTypes types, used;
    struct Output {
      std::string name;
      std::set<std::string> inputs;  // that it depends on
    };
    std::vector<Output> outputs;             // of evaluation
    std::vector<std::string> step_outputs;   // of training
    std::map<std::string, int64_t> lengths;  // inputs that are lengths of attention, and the most that each may be
    std::set<std::string> labels;            // inputs whose padding is -1, which losses ignore
    std::set<std::string> counted;           // labels that are also read as ids, so that their padding cannot be -1
    int64_t mask_rows = 0;                   // of the input kRowMask; 0: the loss does not use it
    int number = -1;                         // the trainer's
    bool trained = false;
    mutable bool checked_padding = false;
    const std::set<std::string>& inputs_of(const char* output) const;
    // Whether the loss can leave out padding rows, by the mask, or its count by labels or other inputs.
    bool knows_padding() const;
    int64_t rows() const;
  };

  LossFunction traced(const InputTypes* types);
  void check_same_trace(const InputTypes* types, Trace& trace);
  void add_kind(const InputTypes* types, bool trained);
  void plan();
  MemoryPlan memory() const;

  // The shape of a batch; Error(kUser) if there is none. `trained`: among those for training.
  const BatchKind& kind_of(const Arrays& batch, bool trained) const;
  [[noreturn]] void fail_kind(const Arrays& batch, const char* does) const;
  // The smallest shape that fits a batch, which may lack inputs and rows.
  const BatchKind& kind_for(const Arrays& batch) const;
  // The shape of a learner with only one, whose inputs set() has filled.
  const BatchKind& given_kind(const char* function);
  void load(const Arrays& batch, const BatchKind& kind, int64_t samples);
  void fill_mask(const BatchKind& kind, int64_t samples) const;
  void check_step(double rate, size_t micro_batches) const;
  void check_padding(const Arrays& batch, const BatchKind& kind);
  bool counts_padding(const Arrays& batch, const BatchKind& kind);
  StepResult finish_step(const StepReport& report, const BatchKind& kind);
  LossTotal evaluate(const BatchKind& kind, int64_t batch);
  // `rows`: how many of so many planned rows were given. With a batch, without what depends on an input it lacks.
  Arrays outputs_of(
      const BatchKind& kind, const Arrays* batch = nullptr, const std::map<int64_t, int64_t>& rows = {}) const;
  const ParameterSlot& slot_of(const std::string& name) const;
  // What evaluation and saved models use: the moving average, if there is one. Pulls all states.
  ParameterValues evaluated_values() const;
  // The learner with the weights: this one, or the one that shares them.
  State& weights() { return owner ? *owner : *this; }
  const State& weights() const { return owner ? *owner : *this; }

  std::atomic<bool> busy = false;  // a step or a prediction runs
  const Module* model;
  TracedLoss loss;  // empty after the constructor
  const LearnerOptions options;
  State* const owner;         // null: the weights are its own
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
  std::set<std::string> given;  // inputs that set() or a batch has filled
  Arrays last_outputs;
  // The recording for each shape, in evaluation and training: a line for each node.
  std::map<std::pair<const InputTypes*, bool>, std::vector<std::string>> traces;
};

// Gives other files access to a learner's weights.
struct LearnerAccess {
  static Learner::State& state(const Learner& learner) { return learner.state(); }
};
}  // namespace linnet

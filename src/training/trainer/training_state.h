// What training changes, in a store's memory: parameters, moments and their moving average, as named flat buffers and
// in packed optimizer states; with several ranks, this rank's part. And the trainer's options.
#pragma once
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "distributed/comm/shard_sum.h"
#include "engine/passes/passes.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/state_names.h"
#include "engine/profile/step_profiler.h"
#include "models/nn/model_store.h"
#include "training/trainer/fit_memory.h"
#include "training/trainer/ownership.h"
#include "training/trainer/range_update.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
struct TrainerOptions {
  OptimizerAttrs optimizer;
  int64_t accumulate_steps = 1;
  ShardShare shards = {};  // a step's batches, or groups of accumulate_steps: training/trainer/sharded_step.h
  // This rank of its tensor group, and its pipeline stages. The layout has the divisions
  // (models/nn/pipeline_parallel.h); losses are the tensor rank's, and the trainer cuts them into stages. Whoever runs
  // steps and evaluations calls TrainingState::set_groups(). Micro-batches of a pipeline are the accumulate_steps, a
  // multiple of the ranks if each has several stages.
  TensorRank tensor = {};
  PipelineRank pipeline = {};
  // ZeRO (Rajbhandari et al. 2020). Stage 1: each rank has the moments of its part of the parameters
  // (training/trainer/ownership.h) and updates it. Stage 2: also its part of the gradients; other parts are freed once
  // sent. Several accumulate_steps need the whole gradient between them.
  bool divide_moments = false, divide_gradients = false;
  LossScaleOptions loss_scale = {};  // for fp16
  int threads = 1;
  uint64_t seed = 1;  // of initial weights and dropout
  PassOptions passes = {};
  RecomputeMode recompute = RecomputeMode::kAuto;
  // Most bytes to use; 0: no limit. With kAuto, layers are recomputed until the step fits. A SingleShapeLearner counts
  // planned memory, a session also that of the process, or on a device the device's memory.
  uint64_t memory = 0;
  uint64_t memory_beside = 0;  // SingleShapeLearner: bytes of `memory` used by others
  bool training = true;        // false: only evaluation; no gradients and no moments
  bool verify_plans = true;    // see PlanOptions
  // Keeps the planned graphs for find_non_finite(): losses are not traced again after bind().
  bool keep_graphs = false;
  const Store* owner = nullptr;  // of the weights, if the layout has an owner: then there is no state "parameters"
  const Backend* backend = &cpu_backend();  // where a SingleShapeLearner makes its store; otherwise the store's
  // The steps to profile; if off, the environment variable LINNET_PROFILE decides.
  ProfileOptions profile = {};

  // Whether a step is Trainer::accumulate() and apply() instead of step().
  bool accumulates() const { return accumulate_steps > 1 || shards.shards > 1 || pipeline.ranks > 1; }
};

class TrainingState {
 public:
  // Declares the states in the store, and the inputs that vary by step. All but `shared` outlive the state.
  TrainingState(const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options,
      ThreadPool& pool);

  const ParameterLayout& layout() const { return layout_; }
  const Store& store() const { return store_; }
  // Groups for kernels that sum over ranks; they outlive all runs.
  void set_groups(const Store::Groups& groups) { store_.set_groups(groups); }

  void initialize();            // parameters and constants from the seed
  void initialize_constants();  // only constants: before load_parameters(), which sets all parameters
  // `load` fills a buffer with all parameters; the moving average restarts from them.
  void load_parameters(const std::function<void(const ParameterTarget& parameters)>& load);
  // `write` fills the host's copy of a parameter, wherever it lies.
  void set_parameter(const ParameterSlot& slot, FunctionRef<void(std::span<float>)> write);

  // Flat states: "parameters" [parameter_count], "moment1", "moment2", "ema" [trained_count] floats.
  const std::vector<std::string>& names() const { return names_; }
  // With a device: the host's copy, see pull().
  float* flat(const std::string& name) const { return store_.as<float>(name); }
  // Packed optimizer states by name in the store; where ranks divide them, this rank's parts.
  const std::vector<PackedState>& packed() const { return packed_; }
  // States that files store in their memory format: undivided packed() and weights with a storage of their own, with or
  // without those that nothing changes (models/nn/model_file.h).
  std::vector<PackedState> all_packed(bool with_frozen = true) const;
  const std::vector<DividedPackedState>& divided_packed() const { return divided_packed_; }
  // Copies all states from the device to the host, and back. No-op on the CPU.
  void pull() const;
  void push() const;

  // The state that evaluation and saved models use: "ema" if there is one, or "parameters".
  const std::string& evaluated() const { return evaluated_; }
  // All parameters (host copies), the trained ones from a state: "parameters" or "ema".
  ParameterValues values(const std::string& of_state) const { return {store_, layout_, flat(of_state)}; }
  void reset_ema();  // to the host's parameters; pushes
  // Swaps parameters and moving average to evaluate the parameters; call it again before a step.
  void exchange_average();

  // Whether ranks divide the moments (training/trainer/divided_states.h), on the CPU only; flat() has slices then.
  bool divides_moments() const { return divides_moments_; }
  bool is_divided(const std::string& state) const { return divides_moments_ && state::is_moment(state); }
  // Whether ranks also divide the gradients, and whether the store has a whole "gradient" too; otherwise its pieces are
  // tensors of the step's plan (bucket_graph()).
  bool divides_gradients() const { return divides_moments_ && options_.divide_gradients; }
  bool has_whole_gradient() const { return !divides_gradients() || options_.accumulate_steps > 1; }
  const Ownership& ownership() const { return ownership_; }
  std::vector<RangeSlice> own_slices() const;  // what this rank updates

  // `count` floats of host memory free until a plan runs: the arena's, if it is large enough.
  std::span<float> scratch(int64_t count);

 private:
  void declare_training();
  void declare_gradients();
  void check_packed() const;

  const ParameterLayout& layout_;
  Store& store_;
  const SharedRegions shared_;
  const TrainerOptions& options_;
  ThreadPool& pool_;
  const Ownership ownership_;
  const bool divides_moments_;
  std::vector<std::string> names_;
  std::vector<PackedState> packed_;
  std::vector<DividedPackedState> divided_packed_;
  std::string evaluated_;
  std::vector<float> scratch_;  // where the arena is too small
};
}  // namespace linnet

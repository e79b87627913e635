// What training changes, in a store's memory: parameters, moments and their moving average, as named flat buffers and
// in packed optimizer states; with several ranks, this rank's part. And the trainer's options.
#pragma once
#include "base/functions.h"
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_sum.h"
#include "engine/ops/kernel.h"
#include "engine/passes/passes.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/plan.h"
#include "engine/plan/store.h"
#include "engine/profile/step_profiler.h"
#include "models/nn/model_store.h"
#include "training/trainer/range_update.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
// What a training step recomputes to fit into a given memory.
enum class RecomputeMode : uint8_t {
  kNone,
  kAttention,  // recomputes attention in every layer
  kBlock,      // recomputes every layer
  kAuto,       // as much as the memory limit requires; nothing without a limit
};
template <> inline constexpr std::array kEnumNames<RecomputeMode>{"none", "attention", "block", "auto"};

struct Fit {
  bool fits = true;  // false: not even the smallest choice does
  std::vector<BlockChoice> choices = {};
  double extra_work = 0;     // recomputation's share of the step's estimated time
  size_t planned_bytes = 0;  // arena and workspace
  std::string text() const;  // "computes 5 of 12 layers again, about 8% more work"; empty: nothing
};

using FitsMemory = FunctionRef<bool(const PlanSize&)>;

Fit fit_by_mode(const Graph& traced, const PassOptions& passes, RecomputeMode mode);

// Returns the first choice that fits from a list with ever more work and less memory: nothing; then, layer by layer,
// what frees most bytes for its work; last, chains of layers. The list depends on the graph alone, so less memory never
// means less work. If nothing fits, returns the choice that takes least.
Fit fit_to_memory(const Graph& traced, const PassOptions& passes, const PlanOptions& planning, const FitsMemory& fits);

// A state of packed_states() whose bytes ranks divide, in their order.
struct DividedPackedState {
  PackedState whole;
  SliceBounds bytes;
  // The name of a rank's part, if it is not empty.
  std::string own_name() const { return whole.name + kOwnSuffix; }
};

// Which parameters each rank updates with ZeRO (Rajbhandari et al. 2020): consecutive elements of every trained range,
// in the order of the ranks. Moments and gradients are divided alike.
class Ownership {
 public:
  // Elementwise optimizers: equal parts that begin at multiples of kSliceUnit, which also are whole blocks of AdamW's
  // 8-bit moments. Muon: whole matrices and any part of the rest. Adafactor: whole tensors.
  Ownership(const ParameterLayout& layout, const OptimizerAttrs& optimizer, int ranks);

  const SliceBounds& bounds(size_t range) const { return bounds_[range]; }  // of ParameterLayout::ranges()
  std::vector<RangeSlice> slices(int rank) const;  // a rank's non-empty parts of the trained ranges
  int64_t count(int rank) const;                   // elements in all of them
  // Packed optimizer states, in the order of packed_states().
  std::vector<DividedPackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& optimizer) const;

 private:
  std::vector<SliceBounds> bounds_;
};

// Where ranks divide the gradient (ZeRO stage 2): this rank's slices of the sums of the rounds so far
// (ShardSum::add_round). After the last round the first node is the gradient, which apply_slices_graph() reads.
void declare_gradient_slices(
    Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership);
// By trained range: most_nodes_after_a_round() slices of an allocated store.
std::vector<std::vector<std::span<float>>> gradient_slices(
    const Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership);

// The sum of squares of a divided gradient, bit for bit that of the op sum_of_squares: the rank that owns the first
// value of a block of kSliceUnit values computes its partial sum, with the rest of the block from later ranks.
class SharedSquares {
 public:
  explicit SharedSquares(Communicator& world) : world_(world) {}

  // Every rank passes its slice of the values that `bounds` divide, and gets the sum.
  float sum(std::span<const float> own, const SliceBounds& bounds, ThreadPool& pool);

 private:
  std::span<const float> complete_last_block(std::span<const float> own, const SliceBounds& bounds);

  Communicator& world_;
  std::vector<double> blocks_;
  std::vector<float> last_block_;
};

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
  // ZeRO (see Ownership). Stage 1: each rank has the moments of its part of the parameters and updates that part.
  // Stage 2: also its part of the gradients; other parts are freed once sent. Several accumulate_steps need the whole
  // gradient between them.
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

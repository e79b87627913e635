// What training changes, in the memory of a store: parameters, moments and their moving average, as flat buffers by
// name and in the packed forms of some optimizers. With several ranks, also which part of them this rank has.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "engine/plan/state_names.h"
#include "models/nn/model_store.h"
#include "training/trainer/options.h"
#include "training/trainer/ownership.h"
#include "training/trainer/range_update.h"

namespace linnet {

class TrainingState {
 public:
  // Declares the states in the store, and the inputs that vary from step to step. All but `shared` outlive the state.
  TrainingState(const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options,
                ThreadPool& pool);

  const ParameterLayout& layout() const { return layout_; }
  const Store& store() const { return store_; }

  void initialize();            // parameters and constants from the seed
  void initialize_constants();  // alone: before load_parameters(), which sets all parameters
  // Has `load` fill a buffer with all parameters, on which the moving average then begins.
  void load_parameters(const std::function<void(const ParameterTarget& parameters)>& load);
  // Has `write` fill a parameter, wherever it lies. The host's copy.
  void set_parameter(const ParameterSlot& slot, FunctionRef<void(std::span<float>)> write);

  // Flat states by name: "parameters" [parameter_count], "moment1", "moment2", "ema" [trained_count] floats.
  const std::vector<std::string>& names() const { return names_; }
  // With a device: the host's copy, see pull().
  float* flat(const std::string& name) const { return store_.as<float>(name); }
  // What some optimizers keep in other forms; the store has their bytes by name. Where ranks divide them, this rank's
  // parts.
  const std::vector<PackedState>& packed() const { return packed_; }
  // What training states hold as it lies in memory: those of packed(), unless ranks divide them, and frozen parameters
  // with a storage of their own.
  std::vector<PackedState> all_packed() const;
  // What each rank has a part of instead.
  const std::vector<DividedPackedState>& divided_packed() const { return divided_packed_; }
  // All states from the device to the host's copies, and back after they were written. Nothing to do on the CPU.
  void pull() const;
  void push() const;

  // The state that evaluation and saved models take: "ema" when there is one, or "parameters".
  const std::string& evaluated() const { return evaluated_; }
  // All parameters, with the trained ones from a state: "parameters" or "ema". The host's copies.
  ParameterValues values(const std::string& of_state) const { return {store_, layout_, flat(of_state)}; }
  void reset_ema();  // to the parameters that the host has written; pushes
  // Exchanges the parameters and their moving average, so that evaluation sees the parameters. A second call restores
  // both; no step may run in between.
  void exchange_average();

  // Whether the moments, which flat() then does not have as a whole, are divided between ranks: see
  // training/trainer/divided_states.h. On the CPU only.
  bool divides_moments() const { return divides_moments_; }
  bool is_divided(const std::string& state) const { return divides_moments_ && state::is_moment(state); }
  // Whether the gradients are too, and whether there is a whole one nevertheless, in the store's "gradient". Without it
  // the pieces of the gradient are tensors of the step's plan (bucket_graph()).
  bool divides_gradients() const { return divides_moments_ && options_.divide_gradients; }
  bool has_whole_gradient() const { return !divides_gradients() || options_.accumulate_steps > 1; }
  const Ownership& ownership() const { return ownership_; }
  // What this rank updates.
  std::vector<RangeSlice> own_slices() const;

  // At least `count` floats that nobody else uses until the next run of a plan: the arena's, if it has as many. The
  // host's memory.
  std::span<float> scratch(int64_t count);

 private:
  void declare_training();
  void declare_packed();
  void declare_gradients();
  void check_packed() const;
  bool any_moment(int moment) const;
  std::vector<PackedState> own_packed() const;

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

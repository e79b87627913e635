#include "training/trainer/training_state.h"
#include <algorithm>
#include "base/error.h"
#include "training/trainer/divided_states.h"
#include "training/trainer/sharded_step.h"

namespace linnet {
namespace {
size_t float_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }
}  // namespace

TrainingState::TrainingState(const ParameterLayout& layout, Store& store, const SharedRegions& shared,
    const TrainerOptions& options, ThreadPool& pool)
    : layout_(layout), store_(store), shared_(shared), options_(options), pool_(pool),
      ownership_(layout, options.optimizer, options.shards.ranks),
      divides_moments_(
          options.training && options.divide_moments && options.shards.ranks > 1 && store.device().is_host()) {
  if (options_.owner) {
    if (options_.optimizer.ema_decay > 0) fail_user("shared weights have no moving average of this learner's own");
    declare_shared(store_, layout_, *options_.owner);
  } else {
    names_ = {state::kParameters};
    declare_flat(store_, layout_, state::kParameters, MemoryKind::kParameters, /*with_untrained=*/true);
    declare_quantized(store_, layout_);
  }
  if (options_.training) declare_training();
  evaluated_ = !names_.empty() && names_.back() == state::kAverage ? state::kAverage : state::kParameters;
  store_.declare(state::kConstants, MemoryKind::kConstants, float_bytes(layout_.constant_count()));
  constexpr size_t kFew = 64;  // bytes
  store_.declare_together(
      "step inputs", MemoryKind::kBatch, {{"control", kFew}, {"random", kFew}, {"loss_scale", kFew}});
  store_.declare_together(
      "loss sums", MemoryKind::kGradients, {{"loss_sum", kFew}, {"token_count", kFew}, {"sum_of_squares", kFew}});
}

void TrainingState::declare_training() {
  const auto any_moment = [&](int moment) {
    return std::ranges::any_of(layout_.ranges(),
        [&](const TrainedRange& range) { return has_moment(optimizer_of(range, options_.optimizer), moment); });
  };
  if (any_moment(1)) names_.emplace_back(state::kMoment1);
  if (any_moment(2)) names_.emplace_back(state::kMoment2);
  if (options_.optimizer.ema_decay > 0) names_.emplace_back(state::kAverage);
  // This rank's slices of divided states, one after the other.
  for (const std::string& name : names_)
    if (is_divided(name))
      store_.declare(name, MemoryKind::kOptimizer, float_bytes(ownership_.count(options_.shards.rank)));
  for (const std::string& name : names_)
    if (name != state::kParameters && !is_divided(name))
      declare_flat(store_, layout_, name, MemoryKind::kOptimizer, /*with_untrained=*/false);
  if (divides_moments_) {
    divided_packed_ = ownership_.packed_states(layout_, options_.optimizer);
    for (const RangeSlice& own : own_slices())
      for (PackedState& state :
          packed_states_of(layout_, part_of(layout_.ranges()[own.range], own), options_.optimizer))
        packed_.push_back(std::move(state));
  } else {
    packed_ = packed_states(layout_, options_.optimizer);
  }
  // One region for all, as a region is rounded up to large pages.
  Store::Parts parts;
  for (const auto& [name, type] : packed_) parts.emplace_back(name, type.bytes());
  if (!parts.empty()) store_.declare_together("packed moments", MemoryKind::kOptimizer, parts);
  check_packed();
  if (options_.accumulates() && has_whole_gradient()) declare_gradients();
  if (options_.shards.shards > 1)
    declare_shard_sums(store_, layout_, options_.shards, divides_gradients() ? &ownership_ : nullptr);
  if (divides_moments_ || stages_of(layout_)) bind_own_slices(store_, layout_, own_slices(), names_);
}

// Rejects options that bf16-stored matrices do not support.
void TrainingState::check_packed() const {
  if (layout_.packed_ranges().empty()) return;
  if (options_.optimizer.ema_decay > 0)
    fail_user("parameters that are stored in bf16 have no moving average: --set ema_decay=0, or storage = \"fp32\"");
  if (options_.shards.shards > 1)
    fail_user("parameters that are stored in bf16 are trained by one process, with data_shards = 1");
}

void TrainingState::declare_gradients() {
  declare_flat(store_, layout_, state::kGradient, MemoryKind::kGradients, /*with_untrained=*/false);
  if (layout_.packed_ranges().empty()) return;
  Store::Parts parts;
  for (const PackedRange& packed : layout_.packed_ranges())
    parts.emplace_back(state::kGradient + packed.range.suffix, float_bytes(packed.range.count));
  store_.declare_together("packed gradients", MemoryKind::kGradients, parts);
}

std::vector<RangeSlice> TrainingState::own_slices() const {
  return divides_moments_ ? ownership_.slices(options_.shards.rank)
                          : Ownership(layout_, options_.optimizer, 1).slices(0);
}

void TrainingState::initialize() {
  if (!options_.owner) {
    layout_.initialize_parameters(options_.seed, flat(state::kParameters), pool_);
    initialize_quantized(store_, layout_, options_.seed, pool_);
  }
  initialize_constants();
  reset_ema();
}

void TrainingState::initialize_constants() {
  layout_.initialize_constants(store_.as<float>(state::kConstants), pool_);
  store_.push(state::kConstants);
}

void TrainingState::reset_ema() {
  if (evaluated_ == state::kAverage)
    std::copy_n(flat(state::kParameters), layout_.trained_count(), flat(state::kAverage));
  push();
}

void TrainingState::load_parameters(const std::function<void(const ParameterTarget& parameters)>& load) {
  load_into(store_, layout_, pool_, load);
  reset_ema();
}

void TrainingState::set_parameter(const ParameterSlot& slot, FunctionRef<void(std::span<float>)> write) {
  const auto count = static_cast<size_t>(slot.spec.shape.elements());
  if (!layout_.is_quantized(slot)) return write({flat(state::kParameters) + slot.offset, count});
  std::vector<float> values(count);
  write(values);
  write_quantized(store_, layout_.quantized_slot(slot), values.data(), pool_);
}

void TrainingState::exchange_average() {
  for (const char* name : {state::kParameters, state::kAverage}) store_.pull(name);
  std::swap_ranges(flat(state::kParameters), flat(state::kParameters) + layout_.trained_count(), flat(state::kAverage));
  for (const char* name : {state::kParameters, state::kAverage}) store_.push(name);
}

std::vector<PackedState> TrainingState::all_packed(bool with_frozen) const {
  std::vector<PackedState> all;
  if (!divides_moments_) all = packed_;
  const auto add = [&](const QuantizedSlot& slot) {
    all.push_back({slot.input(), {DType::kU8, {static_cast<int64_t>(slot.shape.bytes())}}});
  };
  if (with_frozen)
    for (const QuantizedSlot& slot : layout_.quantized()) add(slot);
  else
    for (const PackedRange& range : layout_.packed_ranges()) add(layout_.quantized()[range.quantized]);
  return all;
}

void TrainingState::pull() const {
  for (const std::string& name : names_) store_.pull(name);
  for (const PackedState& state : packed_) store_.pull(state.name);
}

void TrainingState::push() const {
  for (const std::string& name : names_) store_.push(name);
  for (const PackedState& state : packed_) store_.push(state.name);
}

std::span<float> TrainingState::scratch(int64_t count) {
  const auto size = static_cast<size_t>(count);
  if (store_.device().is_host() && store_.regions()[shared_.arena].bytes >= float_bytes(count))
    return {reinterpret_cast<float*>(store_.location(shared_.arena)), size};
  scratch_.resize(std::max(scratch_.size(), size));
  return {scratch_.data(), size};
}
}  // namespace linnet

#include "training/trainer/training_state.h"
#include "base/error.h"
#include "engine/kernels/reduce/reduce.h"
#include "training/trainer/divided_states.h"
#include "training/trainer/sharded_step.h"

namespace linnet {
namespace {
// Cuts `count` elements into about equal parts. Cuts no matrix, and other pieces only if `cuts_others`.
SliceBounds bounds_at_pieces(const std::vector<RangePiece>& pieces, int64_t count, int ranks, bool cuts_others) {
  SliceBounds bounds{0};
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t wanted = count / ranks * rank + count % ranks * rank / ranks;
    const auto next = std::ranges::upper_bound(pieces, wanted, {}, &RangePiece::offset);
    const RangePiece& piece = *std::prev(next);  // contains the element
    const int64_t end = piece.offset + piece.count;
    int64_t cut = wanted - piece.offset < end - wanted ? piece.offset : end;
    if (cuts_others && !piece.is_matrix) {
      constexpr auto kUnit = static_cast<int64_t>(kSliceUnit);
      cut = std::max(wanted / kUnit * kUnit, piece.offset);
    }
    bounds.push_back(std::max(static_cast<size_t>(cut), bounds.back()));
  }
  bounds.push_back(static_cast<size_t>(count));
  return bounds;
}

SliceBounds bounds_of(
    const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& optimizer, int ranks) {
  switch (optimizer_of(range, optimizer).kind) {
    case OptimizerAttrs::Kind::kMuon: return bounds_at_pieces(layer_matrices(layout, range), range.count, ranks, true);
    case OptimizerAttrs::Kind::kAdafactor:
      return bounds_at_pieces(tensors_of(layout, range), range.count, ranks, false);
    default: return slice_bounds(static_cast<size_t>(range.count), ranks);
  }
}

constexpr const char* kSlices = "gradient slices";

static_assert(kSliceUnit == kSumBlock);

// The values of the blocks that begin in a rank's slice.
Slice block_values(const SliceBounds& bounds, int rank) {
  const Slice blocks = block_slice(bounds, rank);
  const size_t first = std::min(blocks.first * kSliceUnit, bounds.back());
  return {first, std::min((blocks.first + blocks.count) * kSliceUnit, bounds.back()) - first};
}
}  // namespace

TrainingState::TrainingState(const ParameterLayout& layout, Store& store, const SharedRegions& shared,
    const TrainerOptions& options, ThreadPool& pool)
    : layout_(layout), store_(store), shared_(shared), options_(options), pool_(pool),
      ownership_(layout, options.optimizer, options.shards.ranks),
      divides_moments_(
          options.training && options.divide_moments && options.shards.ranks > 1 && store.device().is_host()) {
  if (options_.owner) {
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
      "step inputs", MemoryKind::kBatch, {{state::kControl, kFew}, {state::kRandom, kFew}, {state::kLossScale, kFew}});
  store_.declare_together("loss sums", MemoryKind::kGradients,
      {{state::kLossSum, kFew}, {state::kTokenCount, kFew}, {state::kSumOfSquares, kFew}});
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
  const auto add = [&](const QuantizedSlot& slot) { all.push_back({slot.input(), slot.type()}); };
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

Ownership::Ownership(const ParameterLayout& layout, const OptimizerAttrs& optimizer, int ranks) {
  for (const TrainedRange& range : layout.ranges()) bounds_.push_back(bounds_of(layout, range, optimizer, ranks));
}

std::vector<RangeSlice> Ownership::slices(int rank) const {
  std::vector<RangeSlice> slices;
  for (size_t range = 0; range < bounds_.size(); ++range)
    if (const Slice own = slice(bounds_[range], rank); own.count > 0)
      slices.push_back({range, static_cast<int64_t>(own.first), static_cast<int64_t>(own.count)});
  return slices;
}

int64_t Ownership::count(int rank) const { return sum_of<int64_t>(slices(rank), &RangeSlice::count); }

std::vector<DividedPackedState> Ownership::packed_states(
    const ParameterLayout& layout, const OptimizerAttrs& optimizer) const {
  std::vector<DividedPackedState> states;
  for (const TrainedRange& range : layout.ranges())
    for (const PackedState& whole : packed_states_of(layout, range, optimizer)) states.push_back({whole, {0}});
  for (int rank = 0; !bounds_.empty() && rank + 1 < std::ssize(bounds_[0]); ++rank) {
    for (DividedPackedState& state : states) state.bytes.push_back(state.bytes.back());
    for (const RangeSlice& own : slices(rank))
      for (const PackedState& part : packed_states_of(layout, part_of(layout.ranges()[own.range], own), optimizer))
        for (DividedPackedState& state : states)
          if (state.own_name() == part.name) state.bytes.back() += part.type.bytes();
  }
  return states;
}

void declare_gradient_slices(
    Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership) {
  const auto count = static_cast<size_t>(ownership.count(share.rank) * share.most_nodes_after_a_round());
  const RegionId region = store.add_region(kSlices, MemoryKind::kGradients, count * sizeof(float));
  store.bind(kSlices, {region, 0}, count * sizeof(float));
  bind_slices_in_order(store, layout, ownership.slices(share.rank), state::kGradient, {region, 0});
}

std::vector<std::vector<std::span<float>>> gradient_slices(
    const Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership) {
  std::vector<std::vector<std::span<float>>> nodes(layout.ranges().size());
  float* next = store.as<float>(kSlices);
  for (int64_t node = 0; node < share.most_nodes_after_a_round(); ++node)
    for (size_t range = 0; range < nodes.size(); ++range) {
      nodes[range].emplace_back(next, slice(ownership.bounds(range), share.rank).count);
      next += nodes[range].back().size();
    }
  return nodes;
}

// The last block that begins in this rank's slice if it ends in another rank's; otherwise empty.
std::span<const float> SharedSquares::complete_last_block(std::span<const float> own, const SliceBounds& bounds) {
  const int rank = world_.rank();
  const Slice mine = slice(bounds, rank), values = block_values(bounds, rank);
  const size_t end = mine.first + mine.count;
  auto& [outgoing, incoming, none] = world_.empty_lists();
  for (int other = 0; other < rank; ++other)
    if (const Slice part = overlap(block_values(bounds, other), mine); part.count > 0)
      outgoing.push_back({other, std::as_bytes(own.subspan(part.first - mine.first, part.count))});
  const Slice missing = overlap(values, {end, bounds.back() - end});
  if (missing.count > 0) {
    const size_t first = missing.first / kSliceUnit * kSliceUnit;  // of the block
    last_block_.resize(missing.first + missing.count - first);
    std::copy(own.begin() + (first - mine.first), own.end(), last_block_.begin());
    for (int other = rank + 1; other < world_.size(); ++other)
      if (const Slice part = overlap(slice(bounds, other), missing); part.count > 0)
        incoming.push_back(
            {other, std::as_writable_bytes(std::span(last_block_).subspan(part.first - first, part.count))});
  }
  world_.exchange(outgoing, incoming);
  return missing.count > 0 ? std::span<const float>(last_block_) : std::span<const float>{};
}

float SharedSquares::sum(std::span<const float> own, const SliceBounds& bounds, ThreadPool& pool) {
  blocks_.resize(ceil_div(bounds.back(), kSliceUnit));
  const std::span<const float> last = complete_last_block(own, bounds);
  const Slice mine = slice(bounds, world_.rank()), blocks = block_slice(bounds, world_.rank()),
              values = block_values(bounds, world_.rank());
  const size_t whole = blocks.count - (last.empty() ? 0 : 1);  // blocks entirely in the slice
  if (whole > 0) {
    const size_t end = std::min(values.first + whole * kSliceUnit, mine.first + mine.count);
    block_squares(static_cast<int64_t>(end - values.first), own.data() + (values.first - mine.first),
        blocks_.data() + blocks.first, pool);
  }
  if (!last.empty())
    block_squares(static_cast<int64_t>(last.size()), last.data(), blocks_.data() + blocks.first + whole, pool);
  all_gather_slice_blocks(world_, blocks_, bounds);
  return static_cast<float>(sum_of<double>(blocks_));
}
}  // namespace linnet

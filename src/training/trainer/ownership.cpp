#include "training/trainer/ownership.h"
#include <algorithm>
#include "engine/kernels/reduce/reduce.h"
#include "training/trainer/divided_states.h"

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

int64_t Ownership::count(int rank) const {
  int64_t count = 0;
  for (const RangeSlice& own : slices(rank)) count += own.count;
  return count;
}

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
  blocks_.resize((bounds.back() + kSliceUnit - 1) / kSliceUnit);
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
  double sum = 0;
  for (const double block : blocks_) sum += block;
  return static_cast<float>(sum);
}
}  // namespace linnet

#include "training/trainer/ownership.h"

#include <algorithm>

#include "training/trainer/range_update.h"

namespace linnet {
namespace {

// Cuts `count` elements into parts of about the same size. A matrix belongs to one rank, and so does each of the other
// pieces, unless they may be cut.
SliceBounds bounds_at_pieces(const std::vector<RangePiece>& pieces, int64_t count, int ranks, bool cuts_others) {
  SliceBounds bounds{0};
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t wanted = count / ranks * rank + count % ranks * rank / ranks;
    const auto next = std::ranges::upper_bound(pieces, wanted, {}, &RangePiece::offset);
    const RangePiece& piece = *std::prev(next);  // the one that holds the element
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

SliceBounds bounds_of(const ParameterLayout& layout, const TrainedRange& range, const OptimizerAttrs& optimizer,
                      int ranks) {
  switch (optimizer_of(range, optimizer).kind) {
    case OptimizerAttrs::Kind::kMuon:
      return bounds_at_pieces(layer_matrices(layout, range), range.count, ranks, true);
    case OptimizerAttrs::Kind::kAdafactor:
      return bounds_at_pieces(tensors_of(layout, range), range.count, ranks, false);
    default:
      return slice_bounds(static_cast<size_t>(range.count), ranks);
  }
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

std::vector<DividedPackedState> Ownership::packed_states(const ParameterLayout& layout,
                                                         const OptimizerAttrs& optimizer) const {
  std::vector<DividedPackedState> states;
  for (const TrainedRange& range : layout.ranges())
    for (const PackedState& whole : packed_states_of(layout, range, optimizer)) states.push_back({whole, {0}});
  const int ranks = bounds_.empty() ? 0 : static_cast<int>(bounds_[0].size()) - 1;
  for (int rank = 0; rank < ranks; ++rank) {
    for (DividedPackedState& state : states) state.bytes.push_back(state.bytes.back());
    for (const RangeSlice& own : slices(rank))
      for (const PackedState& part : packed_states_of(layout, part_of(layout.ranges()[own.range], own), optimizer))
        for (DividedPackedState& state : states)
          if (state.own_name() == part.name) state.bytes.back() += part.type.bytes();
  }
  return states;
}

}  // namespace linnet

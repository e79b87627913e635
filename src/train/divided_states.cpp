#include "train/divided_states.h"

#include <algorithm>

namespace linnet {
namespace {

template <class T>
auto bytes_at(T* values, int64_t count) {
  const std::span span(values, static_cast<size_t>(count));
  if constexpr (std::is_const_v<T>)
    return std::as_bytes(span);
  else
    return std::as_writable_bytes(span);
}

}  // namespace

std::vector<RangeSlice> own_slices(const ParameterLayout& layout, const ShardShare& share) {
  std::vector<RangeSlice> slices;
  for (size_t i = 0; i < layout.ranges().size(); ++i) {
    const Slice own = slice(static_cast<size_t>(layout.ranges()[i].count), share.rank, share.ranks);
    if (own.count > 0) slices.push_back({i, static_cast<int64_t>(own.first), static_cast<int64_t>(own.count)});
  }
  return slices;
}

void bind_own_slices(Store& store, const ParameterLayout& layout, const ShardShare& share,
                     const std::vector<std::string>& states) {
  for (const std::string& state : states) {
    const Location start = store.find(state, 0);
    const bool is_divided = state.starts_with("moment");
    int64_t before = 0;
    for (const RangeSlice& own : own_slices(layout, share)) {
      const TrainedRange& range = layout.ranges()[own.range];
      const int64_t first = is_divided ? before : range.offset + own.first;
      store.bind("own." + state + range.suffix,
                 {start.region, start.offset + static_cast<size_t>(first) * sizeof(float)},
                 static_cast<size_t>(own.count) * sizeof(float));
      before += own.count;
    }
  }
}

template <class Visit>
void DividedStates::for_parts(int64_t first, int64_t count, const Visit& visit) const {
  const ParameterLayout& layout = trainer_.layout();
  for (int rank = 0; rank < world_.size(); ++rank) {
    int64_t before = 0;
    for (const RangeSlice& own : own_slices(layout, {trainer_.options().shards.shards, rank, world_.size()})) {
      const int64_t start = layout.ranges()[own.range].offset + own.first;
      const int64_t from = std::max(first, start), to = std::min(first + count, start + own.count);
      if (from < to) visit(rank, from, before + from - start, to - from);
      before += own.count;
    }
  }
}

void DividedStates::gather(const std::string& state, int64_t first, int64_t count, float* whole) {
  const float* own = trainer_.state(state);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  for_parts(first, count, [&](int rank, int64_t in_state, int64_t in_own, int64_t part) {
    if (world_.rank() == 0 && rank == 0)
      std::copy_n(own + in_own, part, whole + in_state - first);
    else if (world_.rank() == 0)
      incoming.push_back({rank, bytes_at(whole + in_state - first, part)});
    else if (rank == world_.rank())
      outgoing.push_back({0, bytes_at(own + in_own, part)});
  });
  world_.exchange(outgoing, incoming);
}

void DividedStates::scatter(const std::string& state, int64_t first, int64_t count, const float* whole) {
  float* own = trainer_.state(state);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  for_parts(first, count, [&](int rank, int64_t in_state, int64_t in_own, int64_t part) {
    if (world_.rank() == 0 && rank == 0)
      std::copy_n(whole + in_state - first, part, own + in_own);
    else if (world_.rank() == 0)
      outgoing.push_back({rank, bytes_at(whole + in_state - first, part)});
    else if (rank == world_.rank())
      incoming.push_back({0, bytes_at(own + in_own, part)});
  });
  world_.exchange(outgoing, incoming);
}

}  // namespace linnet

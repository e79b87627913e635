#include "training/trainer/divided_states.h"

#include <algorithm>

#include "engine/plan/state_names.h"

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

void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                          const std::string& state, Location start) {
  for (const RangeSlice& own : slices) {
    const size_t bytes = static_cast<size_t>(own.count) * sizeof(float);
    store.bind(state + part_of(layout.ranges()[own.range], own).suffix, start, bytes);
    start.offset += bytes;
  }
}

void bind_own_slices(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                     const std::vector<std::string>& states) {
  for (const std::string& state : states) {
    const Location start = store.find(state, 0);
    if (state::is_moment(state)) {
      bind_slices_in_order(store, layout, slices, state, start);
      continue;
    }
    for (const RangeSlice& own : slices) {
      const TrainedRange part = part_of(layout.ranges()[own.range], own);
      store.bind(state + part.suffix, {start.region, start.offset + static_cast<size_t>(part.offset) * sizeof(float)},
                 static_cast<size_t>(part.count) * sizeof(float));
    }
  }
}

template <class Visit>
void DividedStates::for_parts(int64_t first, int64_t count, const Visit& visit) const {
  const ParameterLayout& layout = trainer_.layout();
  for (int rank = 0; rank < world_.size(); ++rank) {
    int64_t before = 0;
    for (const RangeSlice& own : trainer_.ownership().slices(rank)) {
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

std::span<std::byte> DividedStates::own_part(const DividedPackedState& state, Slice part) const {
  const Slice own = slice(state.bytes, world_.rank()), both = overlap(own, part);
  if (both.count == 0) return {};
  return {trainer_.store().data(state.own_name()) + (both.first - own.first), both.count};
}

void DividedStates::gather(const DividedPackedState& state, int64_t first, int64_t count, std::byte* whole) {
  const Slice part{static_cast<size_t>(first), static_cast<size_t>(count)};
  const std::span<std::byte> own = own_part(state, part);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  if (world_.rank() != 0) {
    outgoing.push_back({0, own});
  } else {
    std::ranges::copy(own, whole);
    for (int rank = 1; rank < world_.size(); ++rank)
      if (const Slice of = overlap(slice(state.bytes, rank), part); of.count > 0)
        incoming.push_back({rank, {whole + (of.first - part.first), of.count}});
  }
  world_.exchange(outgoing, incoming);
}

void DividedStates::scatter(const DividedPackedState& state, int64_t first, int64_t count, const std::byte* whole) {
  const Slice part{static_cast<size_t>(first), static_cast<size_t>(count)};
  const std::span<std::byte> own = own_part(state, part);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  if (world_.rank() != 0) {
    incoming.push_back({0, own});
  } else {
    std::copy_n(whole, own.size(), own.begin());
    for (int rank = 1; rank < world_.size(); ++rank)
      if (const Slice of = overlap(slice(state.bytes, rank), part); of.count > 0)
        outgoing.push_back({rank, {whole + (of.first - part.first), of.count}});
  }
  world_.exchange(outgoing, incoming);
}

}  // namespace linnet

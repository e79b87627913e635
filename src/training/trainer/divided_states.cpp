#include "training/trainer/divided_states.h"
#include <algorithm>
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/state_names.h"

namespace linnet {

namespace {

template <class T>
auto bytes_at(T* values, int64_t count) {
  const std::span span(values, static_cast<size_t>(count));
  if constexpr (std::is_const_v<T>) return std::as_bytes(span);
  else return std::as_writable_bytes(span);
}

std::span<std::byte> bytes_at(float* values, int64_t count) {
  return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
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
  const ParameterLayout& layout = states_.layout();
  for (int rank = 0; rank < world_.size(); ++rank) {
    int64_t before = 0;
    for (const RangeSlice& own : states_.ownership().slices(rank)) {
      const int64_t start = layout.ranges()[own.range].offset + own.first;
      const int64_t from = std::max(first, start), to = std::min(first + count, start + own.count);
      if (from < to) visit(rank, from, before + from - start, to - from);
      before += own.count;
    }
  }
}

void DividedStates::gather(const std::string& state, int64_t first, int64_t count, float* whole) {
  const float* own = states_.flat(state);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  for_parts(first, count, [&](int rank, int64_t in_state, int64_t in_own, int64_t part) {
    if (world_.rank() == 0 && rank == 0) std::copy_n(own + in_own, part, whole + in_state - first);
    else if (world_.rank() == 0) incoming.push_back({rank, bytes_at(whole + in_state - first, part)});
    else if (rank == world_.rank()) outgoing.push_back({0, bytes_at(own + in_own, part)});
  });
  world_.exchange(outgoing, incoming);
}

void DividedStates::scatter(const std::string& state, int64_t first, int64_t count, const float* whole) {
  float* own = states_.flat(state);
  std::vector<Communicator::Outgoing> outgoing;
  std::vector<Communicator::Incoming> incoming;
  for_parts(first, count, [&](int rank, int64_t in_state, int64_t in_own, int64_t part) {
    if (world_.rank() == 0 && rank == 0) std::copy_n(whole + in_state - first, part, own + in_own);
    else if (world_.rank() == 0) outgoing.push_back({rank, bytes_at(whole + in_state - first, part)});
    else if (rank == world_.rank()) incoming.push_back({0, bytes_at(own + in_own, part)});
  });
  world_.exchange(outgoing, incoming);
}

std::span<std::byte> DividedStates::own_part(const DividedPackedState& state, Slice part) const {
  const Slice own = slice(state.bytes, world_.rank()), both = overlap(own, part);
  if (both.count == 0) return {};
  return {states_.store().data(state.own_name()) + (both.first - own.first), both.count};
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

bool WholeStates::is_divided(const TrainingState& states, const std::string& state, const ParameterSlot& slot) {
  return states.is_divided(state) || states.layout().sharding_of(slot) || stages_of(states.layout());
}

WholeStates::Piece WholeStates::piece(const ParameterSlot& slot, int64_t first) const {
  return {first, std::min(piece_floats_, states_.layout().whole_shape(slot).elements() - first)};
}

WholeStates::Piece WholeStates::piece(const DividedPackedState& state, int64_t first) const {
  const int64_t most = piece_floats_ * static_cast<int64_t>(sizeof(float));
  return {first, std::min(most, static_cast<int64_t>(state.whole.type.bytes()) - first)};
}

void WholeStates::for_pieces(const ParameterSlot& slot, FunctionRef<void(Piece)> visit) const {
  const int64_t count = states_.layout().whole_shape(slot).elements();
  for (int64_t first = 0; first < count; first += piece_floats_) visit(piece(slot, first));
}

void WholeStates::for_pieces(const DividedPackedState& state, FunctionRef<void(Piece)> visit) const {
  const auto count = static_cast<int64_t>(state.whole.type.bytes());
  for (int64_t first = 0; first < count;) {
    const Piece next = piece(state, first);
    visit(next);
    first += next.count;
  }
}

// Scratch memory is the piece, and behind it what a rank has of it.
float* WholeStates::place(int64_t floats) { return states_.scratch(2 * floats).data(); }

template <class Visit>
void WholeStates::for_runs_of(const ParameterSlot& slot, int rank, Piece piece, const Visit& visit) const {
  const Sharding* sharding = states_.layout().sharding_of(slot);
  int64_t before = 0;  // of the piece, in the rank's runs so far
  for_runs(states_.layout().whole_shape(slot), sharding ? *sharding : Sharding::whole(), {rank, tensor_.size()},
           [&](int64_t in_whole, int64_t, int64_t count) {
             const int64_t from = std::max(in_whole, piece.first);
             const int64_t to = std::min(in_whole + count, piece.first + piece.count);
             if (from >= to) return;
             visit(from - piece.first, before, to - from);
             before += to - from;
           });
}

WholeStates::Piece WholeStates::part_of(const ParameterSlot& slot, int rank, Piece piece) const {
  Piece part{0, 0};
  for_runs_of(slot, rank, {0, piece.first}, [&](int64_t, int64_t, int64_t count) { part.first += count; });
  for_runs_of(slot, rank, piece, [&](int64_t, int64_t, int64_t count) { part.count += count; });
  return part;
}

float* WholeStates::own_part(const std::string& state, const ParameterSlot& slot, Piece part, int64_t piece_count) {
  if (!states_.is_divided(state)) return states_.flat(state) + slot.offset + part.first;
  return place(piece_count) + piece_count;
}

void WholeStates::send(const float* values, Piece piece, int stage) {
  const Communicator::Outgoing message{stage, std::as_bytes(std::span(values, static_cast<size_t>(piece.count)))};
  pipeline_.exchange({&message, 1}, {});
}

const float* WholeStates::receive(Piece piece, int stage) {
  float* values = place(piece.count);
  const Communicator::Incoming message{stage, bytes_at(values, piece.count)};
  pipeline_.exchange({}, {&message, 1});
  return values;
}

// The first stage that has a tensor gives it to rank 0.
const float* WholeStates::gather(const std::string& state, const ParameterSlot& slot, Piece piece) {
  const ModelStages* stages = stages_of(states_.layout());
  if (!stages) return gather_in_stage(state, slot, piece);
  const int owner = stages->owner(slot.spec.name);
  if (stages->rank.rank != owner) return is_first_rank() ? receive(piece, owner) : nullptr;
  const float* values = gather_in_stage(state, *find_parameter(states_.layout(), slot.spec.name), piece);
  if (owner == 0 || !values) return values;
  send(values, piece, 0);
  return nullptr;
}

// Every stage that has a tensor gets it.
void WholeStates::scatter(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values) {
  const ModelStages* stages = stages_of(states_.layout());
  if (!stages) return scatter_in_stage(state, slot, piece, values);
  if (is_first_rank())
    for (const int stage : stages->of.at(slot.spec.name))
      if (stage > 0) send(values, piece, stage);
  const ParameterSlot* own = find_parameter(states_.layout(), slot.spec.name);
  if (!own) return;
  if (is_first_of_stage() && stages->rank.rank > 0) values = receive(piece, 0);
  scatter_in_stage(state, *own, piece, values);
}

const float* WholeStates::gather_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece) {
  const Piece own = part_of(slot, tensor_.rank(), piece);
  float* part = own_part(state, slot, own, piece.count);
  if (states_.is_divided(state)) slices_.gather(state, slot.offset + own.first, own.count, part);
  const bool is_sharded = states_.layout().sharding_of(slot);
  if (data_.rank() != 0 || !is_sharded) return is_first_of_stage() ? part : nullptr;
  if (tensor_.rank() != 0) {
    const Communicator::Outgoing message{0, bytes_at(part, own.count)};
    tensor_.exchange({&message, 1}, {});
    return nullptr;
  }
  float* values = place(piece.count);
  // A part that lies in scratch memory is placed before others are received there.
  for (int rank = 0; rank < tensor_.size(); ++rank) {
    if (rank > 0) {
      part = values + piece.count;
      const Communicator::Incoming message{rank, bytes_at(part, part_of(slot, rank, piece).count)};
      tensor_.exchange({}, {&message, 1});
    }
    for_runs_of(slot, rank, piece,
                [&](int64_t to, int64_t from, int64_t count) { std::copy_n(part + from, count, values + to); });
  }
  return values;
}

void WholeStates::scatter_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece,
                                   const float* values) {
  const Piece mine = part_of(slot, tensor_.rank(), piece);
  float* own = own_part(state, slot, mine, piece.count);
  if (data_.rank() == 0 && tensor_.rank() == 0) {
    float* part = place(piece.count) + piece.count;
    for (int rank = tensor_.size() - 1; rank >= 0; --rank) {  // this rank's part last: it may stay in scratch memory
      float* to = rank == 0 ? own : part;
      for_runs_of(slot, rank, piece, [&](int64_t in_piece, int64_t in_part, int64_t count) {
        std::copy_n(values + in_piece, count, to + in_part);
      });
      if (rank == 0) break;
      const Communicator::Outgoing message{rank, bytes_at(part, part_of(slot, rank, piece).count)};
      tensor_.exchange({&message, 1}, {});
    }
  } else if (data_.rank() == 0) {
    const Communicator::Incoming message{0, bytes_at(own, mine.count)};
    tensor_.exchange({}, {&message, 1});
  }
  if (states_.is_divided(state)) slices_.scatter(state, slot.offset + mine.first, mine.count, own);
  else broadcast(data_, 0, std::span(own, static_cast<size_t>(mine.count)));
}

// Ranks of a tensor group never divide packed states.
const std::byte* WholeStates::gather(const DividedPackedState& state, Piece piece) {
  std::byte* values = nullptr;
  if (is_first_rank()) values = bytes_at(place(piece_floats_), piece_floats_).data();
  slices_.gather(state, piece.first, piece.count, values);
  return values;
}

void WholeStates::scatter(const DividedPackedState& state, Piece piece, const std::byte* values) {
  slices_.scatter(state, piece.first, piece.count, values);
}

}  // namespace linnet

#include "training/trainer/divided_states.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
std::span<std::byte> bytes_at(float* values, int64_t count) {
  return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
}

// Moves parts between `whole` on rank 0 and the ranks' `own` memory; `gathers`: to rank 0. for_parts(visit) calls
// visit(rank, first byte of the whole, first of the rank's own, bytes) for all parts.
template <class ForParts>
void exchange_parts(Communicator& world, bool gathers, std::byte* whole, std::byte* own, const ForParts& for_parts) {
  auto& lists = world.empty_lists();
  for_parts([&](int rank, size_t in_whole, size_t in_own, size_t bytes) {
    const bool is_first = world.rank() == 0;
    if (bytes == 0 || (!is_first && rank != world.rank())) return;
    const std::span<std::byte> here{is_first ? whole + in_whole : own + in_own, bytes};
    if (rank == 0) std::memcpy(gathers ? here.data() : own + in_own, gathers ? own + in_own : here.data(), bytes);
    else if (gathers == is_first) lists.incoming.push_back({is_first ? rank : 0, here});
    else lists.outgoing.push_back({is_first ? rank : 0, here});
  });
  world.exchange(lists.outgoing, lists.incoming);
}
}  // namespace

void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
    const std::string& state, Location start) {
  for (const RangeSlice& own : slices) {
    const size_t bytes = float_bytes(own.count);
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
      store.bind(state + part.suffix, {start.region, start.offset + float_bytes(part.offset)}, float_bytes(part.count));
    }
  }
}

WholeTensor whole_tensor(
    const TrainingState& states, const std::string& state, const ParameterSlot& slot, const std::string& prefix) {
  return {prefix + slot.spec.name, {DType::kF32, states.layout().whole_shape(slot)}, state, &slot};
}

void WholeStates::exchange_slices(const std::string& state, Piece piece, bool gathers, float* whole) {
  exchange_parts(data_, gathers, reinterpret_cast<std::byte*>(whole), reinterpret_cast<std::byte*>(states_.flat(state)),
      [&](const auto& visit) {
        for (int rank = 0; rank < data_.size(); ++rank) {
          int64_t before = 0;
          for (const RangeSlice& own : states_.ownership().slices(rank)) {
            const int64_t start = states_.layout().ranges()[own.range].offset + own.first;
            const int64_t from = std::max(piece.first, start),
                          to = std::min(piece.first + piece.count, start + own.count);
            if (from < to)
              visit(rank, float_bytes(from - piece.first), float_bytes(before + from - start), float_bytes(to - from));
            before += own.count;
          }
        }
      });
}

// Ranks of a tensor group never divide packed states.
void WholeStates::exchange_packed(const DividedPackedState& state, Slice piece, bool gathers, std::byte* whole) {
  const bool has_own = slice(state.bytes, data_.rank()).count > 0;
  std::byte* own = has_own ? states_.store().data(state.own_name()) : nullptr;
  exchange_parts(data_, gathers, whole, own, [&](const auto& visit) {
    for (int rank = 0; rank < data_.size(); ++rank) {
      const Slice part = slice(state.bytes, rank), both = overlap(part, piece);
      visit(rank, both.first - piece.first, both.first - part.first, both.count);
    }
  });
}

bool WholeStates::is_divided(const TrainingState& states, const std::string& state, const ParameterSlot& slot) {
  return states.is_divided(state) || states.layout().sharding_of(slot) || stages_of(states.layout());
}

template <class Visit> void WholeStates::for_pieces(const WholeTensor& tensor, const Visit& visit) const {
  const size_t bytes = tensor.type.bytes(), most = float_bytes(piece_floats_);
  for (size_t first = 0; first < bytes; first += most) visit(first, std::min(most, bytes - first));
}

std::span<const std::byte> WholeStates::gather(const WholeTensor& tensor, size_t first) {
  const size_t count = std::min(float_bytes(piece_floats_), tensor.type.bytes() - first);
  if (tensor.packed) {
    std::byte* whole = is_first_rank() ? bytes_at(place(piece_floats_), piece_floats_).data() : nullptr;
    exchange_packed(*tensor.packed, {first, count}, true, whole);
    return {whole, count};
  }
  const Piece piece{static_cast<int64_t>(first / sizeof(float)), static_cast<int64_t>(count / sizeof(float))};
  return {reinterpret_cast<const std::byte*>(gather_floats(tensor.state, *tensor.slot, piece)), count};
}

void WholeStates::give(const WholeTensor& tensor) {
  for_pieces(tensor, [&](size_t first, size_t) { gather(tensor, first); });
}

void WholeStates::scatter(const WholeTensor& tensor, const std::byte* whole, FunctionRef<void()> after_piece) {
  for_pieces(tensor, [&](size_t first, size_t count) {
    if (tensor.packed) {
      exchange_packed(*tensor.packed, {first, count}, false, whole ? const_cast<std::byte*>(whole) + first : nullptr);
    } else {
      const Piece piece{static_cast<int64_t>(first / sizeof(float)), static_cast<int64_t>(count / sizeof(float))};
      float* values = whole ? place(piece.count) : nullptr;  // a file's tensor may be unaligned
      if (whole) std::memcpy(values, whole + first, count);
      scatter_floats(tensor.state, *tensor.slot, piece, values);
    }
    after_piece();
  });
}

// Scratch memory holds the piece, then the rank's part of it.
float* WholeStates::place(int64_t floats) { return states_.scratch(2 * floats).data(); }

template <class Visit>
void WholeStates::for_runs_of(const ParameterSlot& slot, int rank, Piece piece, const Visit& visit) const {
  const Sharding* sharding = states_.layout().sharding_of(slot);
  int64_t before = 0;  // elements of the piece in earlier runs
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

// The first stage that has the tensor sends it to rank 0.
const float* WholeStates::gather_floats(const std::string& state, const ParameterSlot& slot, Piece piece) {
  const ModelStages* stages = stages_of(states_.layout());
  if (!stages) return gather_in_stage(state, slot, piece);
  const int owner = stages->owner(slot.spec.name);
  if (stages->rank.rank != owner) {
    if (!is_first_rank()) return nullptr;
    float* received = place(piece.count);
    receive(pipeline_, owner, bytes_at(received, piece.count));
    return received;
  }
  const float* values = gather_in_stage(state, *find_parameter(states_.layout(), slot.spec.name), piece);
  if (owner == 0 || !values) return values;
  send(pipeline_, 0, std::as_bytes(std::span(values, static_cast<size_t>(piece.count))));
  return nullptr;
}

// Every stage that has the tensor receives it.
void WholeStates::scatter_floats(
    const std::string& state, const ParameterSlot& slot, Piece piece, const float* values) {
  const ModelStages* stages = stages_of(states_.layout());
  if (!stages) return scatter_in_stage(state, slot, piece, values);
  if (is_first_rank())
    for (const int stage : stages->of.at(slot.spec.name))
      if (stage > 0) send(pipeline_, stage, std::as_bytes(std::span(values, static_cast<size_t>(piece.count))));
  const ParameterSlot* own = find_parameter(states_.layout(), slot.spec.name);
  if (!own) return;
  if (is_first_of_stage() && stages->rank.rank > 0) {
    float* received = place(piece.count);
    receive(pipeline_, 0, bytes_at(received, piece.count));
    values = received;
  }
  scatter_in_stage(state, *own, piece, values);
}

const float* WholeStates::gather_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece) {
  const Piece own = part_of(slot, tensor_.rank(), piece);
  float* part = own_part(state, slot, own, piece.count);
  if (states_.is_divided(state)) exchange_slices(state, {slot.offset + own.first, own.count}, true, part);
  const bool is_sharded = states_.layout().sharding_of(slot);
  if (data_.rank() != 0 || !is_sharded) return is_first_of_stage() ? part : nullptr;
  if (tensor_.rank() != 0) {
    send(tensor_, 0, bytes_at(part, own.count));
    return nullptr;
  }
  float* values = place(piece.count);
  // A part in scratch memory is moved before others are received there.
  for (int rank = 0; rank < tensor_.size(); ++rank) {
    if (rank > 0) {
      part = values + piece.count;
      receive(tensor_, rank, bytes_at(part, part_of(slot, rank, piece).count));
    }
    for_runs_of(slot, rank, piece,
        [&](int64_t to, int64_t from, int64_t count) { std::copy_n(part + from, count, values + to); });
  }
  return values;
}

void WholeStates::scatter_in_stage(
    const std::string& state, const ParameterSlot& slot, Piece piece, const float* values) {
  const Piece mine = part_of(slot, tensor_.rank(), piece);
  float* own = own_part(state, slot, mine, piece.count);
  if (data_.rank() == 0 && tensor_.rank() == 0) {
    float* part = place(piece.count) + piece.count;
    for (int rank = tensor_.size() - 1; rank >= 0; --rank) {  // this rank's part last, as it may stay in scratch memory
      float* to = rank == 0 ? own : part;
      for_runs_of(slot, rank, piece, [&](int64_t in_piece, int64_t in_part, int64_t count) {
        std::copy_n(values + in_piece, count, to + in_part);
      });
      if (rank == 0) break;
      send(tensor_, rank, bytes_at(part, part_of(slot, rank, piece).count));
    }
  } else if (data_.rank() == 0) {
    receive(tensor_, 0, bytes_at(own, mine.count));
  }
  if (states_.is_divided(state)) exchange_slices(state, {slot.offset + mine.first, mine.count}, false, own);
  else broadcast(data_, 0, std::span(own, static_cast<size_t>(mine.count)));
}
}  // namespace linnet

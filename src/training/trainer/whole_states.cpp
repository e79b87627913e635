#include "training/trainer/whole_states.h"

#include <algorithm>

#include "engine/passes/tensor_parallel.h"

namespace linnet {
namespace {

std::span<std::byte> bytes_at(float* values, int64_t count) {
  return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
}

}  // namespace

bool WholeStates::is_divided(const Trainer& trainer, const std::string& state, const ParameterSlot& slot) {
  return trainer.is_divided(state) || trainer.layout().sharding_of(slot) || stages_of(trainer.layout());
}

WholeStates::Piece WholeStates::piece(const ParameterSlot& slot, int64_t first) const {
  return {first, std::min(piece_floats_, trainer_.layout().whole_shape(slot).elements() - first)};
}

WholeStates::Piece WholeStates::piece(const DividedPackedState& state, int64_t first) const {
  const int64_t most = piece_floats_ * static_cast<int64_t>(sizeof(float));
  return {first, std::min(most, static_cast<int64_t>(state.whole.type.bytes()) - first)};
}

void WholeStates::for_pieces(const ParameterSlot& slot, FunctionRef<void(Piece)> visit) const {
  const int64_t count = trainer_.layout().whole_shape(slot).elements();
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
float* WholeStates::place(int64_t floats) { return trainer_.scratch(2 * floats).data(); }

template <class Visit>
void WholeStates::for_runs_of(const ParameterSlot& slot, int rank, Piece piece, const Visit& visit) const {
  const Sharding* sharding = trainer_.layout().sharding_of(slot);
  int64_t before = 0;  // of the piece, in the rank's runs so far
  for_runs(trainer_.layout().whole_shape(slot), sharding ? *sharding : Sharding::whole(), {rank, tensor_.size()},
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
  if (!trainer_.is_divided(state)) return trainer_.state(state) + slot.offset + part.first;
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
  const ModelStages* stages = stages_of(trainer_.layout());
  if (!stages) return gather_in_stage(state, slot, piece);
  const int owner = stages->owner(slot.spec.name);
  if (stages->rank.rank != owner) return is_first_rank() ? receive(piece, owner) : nullptr;
  const float* values = gather_in_stage(state, *find_parameter(trainer_.layout(), slot.spec.name), piece);
  if (owner == 0 || !values) return values;
  send(values, piece, 0);
  return nullptr;
}

// Every stage that has a tensor gets it.
void WholeStates::scatter(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values) {
  const ModelStages* stages = stages_of(trainer_.layout());
  if (!stages) return scatter_in_stage(state, slot, piece, values);
  if (is_first_rank())
    for (const int stage : stages->of.at(slot.spec.name))
      if (stage > 0) send(values, piece, stage);
  const ParameterSlot* own = find_parameter(trainer_.layout(), slot.spec.name);
  if (!own) return;
  if (is_first_of_stage() && stages->rank.rank > 0) values = receive(piece, 0);
  scatter_in_stage(state, *own, piece, values);
}

const float* WholeStates::gather_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece) {
  const Piece own = part_of(slot, tensor_.rank(), piece);
  float* part = own_part(state, slot, own, piece.count);
  if (trainer_.is_divided(state)) slices_.gather(state, slot.offset + own.first, own.count, part);
  const bool is_sharded = trainer_.layout().sharding_of(slot);
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
  if (trainer_.is_divided(state))
    slices_.scatter(state, slot.offset + mine.first, mine.count, own);
  else
    broadcast(data_, 0, std::span(own, static_cast<size_t>(mine.count)));
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

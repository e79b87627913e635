#include "train/whole_states.h"

#include <algorithm>

#include "passes/tensor_parallel.h"

namespace linnet {
namespace {

std::span<std::byte> bytes_at(float* values, int64_t count) {
  return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
}

}  // namespace

bool WholeStates::is_divided(const Trainer& trainer, const std::string& state, const ParameterSlot& slot) {
  return trainer.is_divided(state) || trainer.layout().sharding_of(slot) || stages_of(trainer.layout());
}

Shape WholeStates::part_shape(const ParameterSlot& slot, int rank) const {
  const Sharding* sharding = trainer_.layout().sharding_of(slot);
  const Shape whole = trainer_.layout().whole_shape(slot);
  return sharding ? local_shape(whole, *sharding, {rank, tensor_.size()}) : whole;
}

// Scratch memory is the whole tensor, and behind it a part.
float* WholeStates::place(const ParameterSlot& slot) {
  const int64_t whole = trainer_.layout().whole_shape(slot).elements();
  return trainer_.scratch(2 * whole).data();
}

float* WholeStates::own_part(const std::string& state, const ParameterSlot& slot) {
  if (!trainer_.is_divided(state)) return trainer_.state(state) + slot.offset;
  return place(slot) + trainer_.layout().whole_shape(slot).elements();
}

void WholeStates::send(const float* whole, const ParameterSlot& slot, int stage) {
  const auto count = static_cast<size_t>(trainer_.layout().whole_shape(slot).elements());
  const Communicator::Outgoing message{stage, std::as_bytes(std::span(whole, count))};
  pipeline_.exchange({&message, 1}, {});
}

const float* WholeStates::receive(const ParameterSlot& slot, int stage) {
  float* whole = place(slot);
  const Communicator::Incoming message{stage, bytes_at(whole, trainer_.layout().whole_shape(slot).elements())};
  pipeline_.exchange({}, {&message, 1});
  return whole;
}

// The first stage that has a tensor gives it to rank 0.
const float* WholeStates::gather(const std::string& state, const ParameterSlot& slot) {
  const ModelStages* stages = stages_of(trainer_.layout());
  if (!stages) return gather_in_stage(state, slot);
  const int owner = stages->owner(slot.spec.name);
  if (stages->rank.rank != owner) return is_first_rank() ? receive(slot, owner) : nullptr;
  const float* whole = gather_in_stage(state, *find_parameter(trainer_.layout(), slot.spec.name));
  if (owner == 0 || !whole) return whole;
  send(whole, slot, 0);
  return nullptr;
}

// Every stage that has a tensor gets it.
void WholeStates::scatter(const std::string& state, const ParameterSlot& slot, const float* whole) {
  const ModelStages* stages = stages_of(trainer_.layout());
  if (!stages) return scatter_in_stage(state, slot, whole);
  if (is_first_rank())
    for (const int stage : stages->of.at(slot.spec.name))
      if (stage > 0) send(whole, slot, stage);
  const ParameterSlot* own = find_parameter(trainer_.layout(), slot.spec.name);
  if (!own) return;
  if (is_first_of_stage() && stages->rank.rank > 0) whole = receive(slot, 0);
  scatter_in_stage(state, *own, whole);
}

const float* WholeStates::gather_in_stage(const std::string& state, const ParameterSlot& slot) {
  float* part = own_part(state, slot);
  const int64_t own_count = slot.spec.shape.elements();
  if (trainer_.is_divided(state)) slices_.gather(state, slot.offset, own_count, part);
  const Sharding* sharding = trainer_.layout().sharding_of(slot);
  if (data_.rank() != 0 || !sharding) return is_first_of_stage() ? part : nullptr;
  if (tensor_.rank() != 0) {
    const Communicator::Outgoing message{0, bytes_at(part, own_count)};
    tensor_.exchange({&message, 1}, {});
    return nullptr;
  }
  float* whole = place(slot);
  // A part that lies in scratch memory is placed before others are received there.
  for (int rank = 0; rank < tensor_.size(); ++rank) {
    const int64_t count = part_shape(slot, rank).elements();
    if (rank > 0) {
      part = whole + trainer_.layout().whole_shape(slot).elements();
      const Communicator::Incoming message{rank, bytes_at(part, count)};
      tensor_.exchange({}, {&message, 1});
    }
    for_runs(trainer_.layout().whole_shape(slot), *sharding, {rank, tensor_.size()},
             [&](int64_t to, int64_t from, int64_t run) { std::copy_n(part + from, run, whole + to); });
  }
  return whole;
}

void WholeStates::scatter_in_stage(const std::string& state, const ParameterSlot& slot, const float* whole) {
  const Sharding* sharding = trainer_.layout().sharding_of(slot);
  const Shape shape = trainer_.layout().whole_shape(slot);
  float* own = own_part(state, slot);
  const int64_t own_count = slot.spec.shape.elements();
  if (data_.rank() == 0 && tensor_.rank() == 0) {
    float* part = place(slot) + shape.elements();
    for (int rank = tensor_.size() - 1; rank >= 0; --rank) {  // this rank's part last: it may stay in scratch memory
      float* to = rank == 0 ? own : part;
      const Sharding how = sharding ? *sharding : Sharding::whole();
      for_runs(shape, how, {rank, tensor_.size()}, [&](int64_t in_whole, int64_t in_part, int64_t run) {
        std::copy_n(whole + in_whole, run, to + in_part);
      });
      if (rank == 0) break;
      const Communicator::Outgoing message{rank, bytes_at(part, part_shape(slot, rank).elements())};
      tensor_.exchange({&message, 1}, {});
    }
  } else if (data_.rank() == 0) {
    const Communicator::Incoming message{0, bytes_at(own, own_count)};
    tensor_.exchange({}, {&message, 1});
  }
  if (trainer_.is_divided(state))
    slices_.scatter(state, slot.offset, own_count, own);
  else
    broadcast(data_, 0, std::span(own, static_cast<size_t>(own_count)));
}

std::byte* WholeStates::place(const DividedPackedState& state) {
  const size_t floats = (state.bytes.back() + sizeof(float) - 1) / sizeof(float);
  return reinterpret_cast<std::byte*>(trainer_.scratch(static_cast<int64_t>(floats)).data());
}

// Ranks of a tensor group never divide packed states.
const std::byte* WholeStates::gather(const DividedPackedState& state) {
  std::byte* whole = is_first_rank() ? place(state) : nullptr;
  slices_.gather(state, whole);
  return whole;
}

void WholeStates::scatter(const DividedPackedState& state, const std::byte* whole) { slices_.scatter(state, whole); }

}  // namespace linnet

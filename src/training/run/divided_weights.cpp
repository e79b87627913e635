#include "training/run/divided_weights.h"

#include <map>
#include <memory>

#include "base/process_memory.h"
#include "distributed/comm/agreement.h"
#include "engine/plan/state_names.h"

namespace linnet {
namespace {

constexpr int64_t kEnd = -1;

// Rank 0 tells all which of the tensors follows.
int64_t announce(Communicator& world, int64_t index) {
  broadcast(world, 0, std::as_writable_bytes(std::span(&index, 1)));
  return index;
}

void scatter(WholeStates& whole, const ParameterSlot& slot, const float* values) {
  whole.for_pieces(slot, [&](WholeStates::Piece piece) {
    whole.scatter(state::kParameters, slot, piece, values ? values + piece.first : nullptr);
  });
}

void give_weights(Communicator& world, const Trainer& trainer, WholeStates& whole, const PretrainedModel& model,
                  uint64_t seed) {
  std::map<std::string, int64_t> index;
  for (const ParameterSlot& slot : WholeStates::layout(trainer).parameters())
    index.emplace(slot.spec.name, static_cast<int64_t>(index.size()));
  const ParameterLayout layout(*model.module);
  // Addresses for all parameters, of which only the one that is being read has memory.
  const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(layout.parameter_count()));
  ParameterTarget target = values.get();
  target.finished = [&](const ParameterSlot& slot) {
    const int64_t which = announce(world, index.at(slot.spec.name));
    const ParameterSlot& of_ranks = WholeStates::layout(trainer).parameters()[static_cast<size_t>(which)];
    scatter(whole, of_ranks, values.get() + slot.offset);
    give_back_pages(values.get() + slot.offset, static_cast<size_t>(slot.spec.shape.elements()) * sizeof(float));
  };
  load_parameters(model, layout, target, seed);
}

void take_weights(Communicator& world, const Trainer& trainer, WholeStates& whole) {
  const std::vector<ParameterSlot>& slots = WholeStates::layout(trainer).parameters();
  for (int64_t next = announce(world, kEnd); next != kEnd; next = announce(world, kEnd))
    scatter(whole, slots[static_cast<size_t>(next)], nullptr);
}

}  // namespace

void load_divided_weights(Communicator& world, Trainer& trainer, WholeStates& whole, const PretrainedModel* model,
                          uint64_t seed) {
  run_on_all(world, [&] {
    if (world.rank() > 0) return take_weights(world, trainer, whole);
    try {
      give_weights(world, trainer, whole, *model, seed);
    } catch (...) {
      announce(world, kEnd);  // the others wait for the next tensor
      throw;
    }
    announce(world, kEnd);
  });
  trainer.reset_ema();
}

}  // namespace linnet

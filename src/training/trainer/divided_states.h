// States that no rank has as a whole (ZeRO): each has them for its slices of the parameters. See also
// training/trainer/whole_states.h.
#pragma once
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"
#include "training/trainer/trainer.h"

namespace linnet {

// Binds the inputs of apply_slices_graph(), of this rank's slices. `states` are declared: whole, or, if divided, those
// slices one after the other.
void bind_own_slices(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                     const std::vector<std::string>& states);
// The same of one state whose slices lie one after the other from `start` on.
void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                          const std::string& state, Location start);

class DividedStates {
 public:
  DividedStates(Trainer& trainer, Communicator& world) : trainer_(trainer), world_(world) {}

  // Every rank calls these, in the same order.
  // The elements [first, first + count) of a state come to `whole` on rank 0; other ranks give null.
  void gather(const std::string& state, int64_t first, int64_t count, float* whole);
  // All ranks take their slices of the same elements, which rank 0 has in `whole`.
  void scatter(const std::string& state, int64_t first, int64_t count, const float* whole);
  // The same of the bytes [first, first + count) of a packed state.
  void gather(const DividedPackedState& state, int64_t first, int64_t count, std::byte* whole);
  void scatter(const DividedPackedState& state, int64_t first, int64_t count, const std::byte* whole);

 private:
  // What this rank has of `part`, which is of the whole state.
  std::span<std::byte> own_part(const DividedPackedState& state, Slice part) const;
  // visit(rank, first in the state, first in the rank's slices, count) for what the ranks have of a part.
  template <class Visit>
  void for_parts(int64_t first, int64_t count, const Visit& visit) const;

  Trainer& trainer_;
  Communicator& world_;
};

}  // namespace linnet

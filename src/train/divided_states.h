// States that no rank has as a whole (ZeRO): each has them for its slices of the parameters. See also
// train/whole_states.h.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/trainer.h"

namespace linnet {

// What a rank updates: of each trained range its slice() (comm/communicator.h), unless that is empty.
std::vector<RangeSlice> own_slices(const ParameterLayout& layout, const ShardShare& share);

// Binds the inputs of apply_slices_graph(). `states` are declared: whole, or, if divided, this rank's slices.
void bind_own_slices(Store& store, const ParameterLayout& layout, const ShardShare& share,
                     const std::vector<std::string>& states);

class DividedStates {
 public:
  DividedStates(Trainer& trainer, Communicator& world) : trainer_(trainer), world_(world) {}

  // Every rank calls these, in the same order.
  // The elements [first, first + count) of a state come to `whole` on rank 0; other ranks give null.
  void gather(const std::string& state, int64_t first, int64_t count, float* whole);
  // All ranks take their slices of the same elements, which rank 0 has in `whole`.
  void scatter(const std::string& state, int64_t first, int64_t count, const float* whole);

 private:
  // visit(rank, first in the state, first in the rank's slices, count) for what the ranks have of a part.
  template <class Visit>
  void for_parts(int64_t first, int64_t count, const Visit& visit) const;

  Trainer& trainer_;
  Communicator& world_;
};

}  // namespace linnet

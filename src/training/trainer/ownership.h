// Which parameters each rank updates where ranks divide the update (ZeRO, Rajbhandari et al. 2020): of every trained
// range consecutive elements, in the order of the ranks, so that moments and gradients are divided alike.
#pragma once
#include <vector>

#include "distributed/comm/communicator.h"
#include "training/trainer/range_update.h"
#include "training/trainer/step_graphs.h"

namespace linnet {

// A state of packed_states() of which each rank has a part: its bytes, in the order of the ranks.
struct DividedPackedState {
  PackedState whole;
  SliceBounds bytes;
  // A rank has its part under this name, unless that is empty.
  std::string own_name() const { return whole.name + kOwnSuffix; }
};

class Ownership {
 public:
  // Elementwise optimizers: equal parts that begin at multiples of kSliceUnit, which are whole blocks of AdamW's 8-bit
  // moments too. Muon: whole matrices and any part of the rest. Adafactor: whole tensors.
  Ownership(const ParameterLayout& layout, const OptimizerAttrs& optimizer, int ranks);

  const SliceBounds& bounds(size_t range) const { return bounds_[range]; }  // of ParameterLayout::ranges()
  // What a rank updates: of each trained range its part, unless that is empty.
  std::vector<RangeSlice> slices(int rank) const;
  int64_t count(int rank) const;  // elements in all of them
  // What the optimizers keep beside moments of fp32, in the order of packed_states().
  std::vector<DividedPackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& optimizer) const;

 private:
  std::vector<SliceBounds> bounds_;
};

}  // namespace linnet

// Which parameters each rank updates where ranks divide the update (ZeRO, Rajbhandari et al. 2020): of every trained
// range consecutive elements, in the order of the ranks, so that moments and gradients are divided alike.
#pragma once
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_sum.h"
#include "engine/plan/store.h"
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

// Where ranks divide the gradient (ZeRO stage 2): this rank's slices of what the rounds of a step (ShardSum::add_round)
// have added so far. After the last round the first node is the gradient, which apply_slices_graph() reads.
void declare_gradient_slices(Store& store, const ParameterLayout& layout, const ShardShare& share,
                             const Ownership& ownership);
// Of a store that is allocated: by trained range, most_nodes_after_a_round() of them.
std::vector<std::vector<std::span<float>>> gradient_slices(const Store& store, const ParameterLayout& layout,
                                                           const ShardShare& share, const Ownership& ownership);

// The sum of squares of a gradient of which each rank has a slice, with the bits that the op sum_of_squares gives of
// the whole: the partial sum of each block of kSliceUnit values is computed by the rank that owns its first value,
// which gets the rest of the block from the ranks behind it.

class SharedSquares {
 public:
  explicit SharedSquares(Communicator& world) : world_(world) {}

  // Every rank gives its slice of the values that `bounds` divide, and gets the sum.
  float sum(std::span<const float> own, const SliceBounds& bounds, ThreadPool& pool);

 private:
  std::span<const float> complete_last_block(std::span<const float> own, const SliceBounds& bounds);

  Communicator& world_;
  std::vector<double> blocks_;
  std::vector<float> last_block_;
};

}  // namespace linnet

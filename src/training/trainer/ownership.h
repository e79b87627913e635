// Which parameters each rank updates with ZeRO (Rajbhandari et al. 2020): consecutive elements of every trained range,
// in the order of the ranks. Moments and gradients are divided alike.
#pragma once
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_sum.h"
#include "engine/plan/store.h"
#include "training/trainer/range_update.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
// A state of packed_states() whose bytes ranks divide, in their order.
struct DividedPackedState {
  PackedState whole;
  SliceBounds bytes;
  // The name of a rank's part, if it is not empty.
  std::string own_name() const { return whole.name + kOwnSuffix; }
};

class Ownership {
 public:
  // Elementwise optimizers: equal parts that begin at multiples of kSliceUnit, which also are whole blocks of AdamW's
  // 8-bit moments. Muon: whole matrices and any part of the rest. Adafactor: whole tensors.
  Ownership(const ParameterLayout& layout, const OptimizerAttrs& optimizer, int ranks);

  const SliceBounds& bounds(size_t range) const { return bounds_[range]; }  // of ParameterLayout::ranges()
  // A rank's non-empty parts of the trained ranges.
  std::vector<RangeSlice> slices(int rank) const;
  int64_t count(int rank) const;  // elements in all of them
  // Packed optimizer states, in the order of packed_states().
  std::vector<DividedPackedState> packed_states(const ParameterLayout& layout, const OptimizerAttrs& optimizer) const;

 private:
  std::vector<SliceBounds> bounds_;
};

// Where ranks divide the gradient (ZeRO stage 2): this rank's slices of the sums of the rounds so far
// (ShardSum::add_round). After the last round the first node is the gradient, which apply_slices_graph() reads.
void declare_gradient_slices(
    Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership);
// By trained range: most_nodes_after_a_round() slices of an allocated store.
std::vector<std::vector<std::span<float>>> gradient_slices(
    const Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership);

// The sum of squares of a divided gradient, bit for bit that of the op sum_of_squares: the rank that owns the first
// value of a block of kSliceUnit values computes its partial sum, with the rest of the block from later ranks.

class SharedSquares {
 public:
  explicit SharedSquares(Communicator& world) : world_(world) {}

  // Every rank passes its slice of the values that `bounds` divide, and gets the sum.
  float sum(std::span<const float> own, const SliceBounds& bounds, ThreadPool& pool);

 private:
  std::span<const float> complete_last_block(std::span<const float> own, const SliceBounds& bounds);

  Communicator& world_;
  std::vector<double> blocks_;
  std::vector<float> last_block_;
};
}  // namespace linnet

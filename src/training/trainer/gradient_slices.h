// Where ranks divide the gradient (ZeRO stage 2): this rank's slices of what the rounds of a step (ShardSum::add_round
// in distributed/comm/shard_sum.h) have added so far. After the last round the first node is the gradient, which
// apply_slices_graph() reads.
#pragma once
#include <span>
#include <vector>

#include "distributed/comm/shard_tree.h"
#include "engine/plan/store.h"
#include "training/trainer/ownership.h"

namespace linnet {

class GradientSlices {
 public:
  static void declare(Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership& ownership);
  // Of a store that is allocated.
  GradientSlices(const Store& store, const ParameterLayout& layout, const ShardShare& share,
                 const Ownership& ownership);

  // Of a trained range, most_nodes_after_a_round() of them.
  std::span<const std::span<float>> nodes(size_t range) const { return nodes_[range]; }

 private:
  std::vector<std::vector<std::span<float>>> nodes_;
};

}  // namespace linnet

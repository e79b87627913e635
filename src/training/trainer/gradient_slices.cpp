#include "training/trainer/gradient_slices.h"

#include "engine/plan/state_names.h"
#include "training/trainer/divided_states.h"

namespace linnet {
namespace {

constexpr const char* kSlices = "gradient slices";

}  // namespace

void GradientSlices::declare(Store& store, const ParameterLayout& layout, const ShardShare& share,
                             const Ownership& ownership) {
  const auto count = static_cast<size_t>(ownership.count(share.rank) * share.most_nodes_after_a_round());
  const RegionId region = store.add_region(kSlices, MemoryKind::kGradients, count * sizeof(float));
  store.bind(kSlices, {region, 0}, count * sizeof(float));
  bind_slices_in_order(store, layout, ownership.slices(share.rank), state::kGradient, {region, 0});
}

GradientSlices::GradientSlices(const Store& store, const ParameterLayout& layout, const ShardShare& share,
                               const Ownership& ownership)
    : nodes_(layout.ranges().size()) {
  float* next = store.as<float>(kSlices);
  for (int64_t node = 0; node < share.most_nodes_after_a_round(); ++node)
    for (size_t range = 0; range < nodes_.size(); ++range) {
      const size_t count = slice(ownership.bounds(range), share.rank).count;
      nodes_[range].emplace_back(next, count);
      next += count;
    }
}

}  // namespace linnet

#include "training/trainer/gradient_buckets.h"
#include <algorithm>
#include <cstdint>
#include <numeric>
#include "engine/ops/collective/collective.h"
#include "engine/plan/state_names.h"
#include "engine/plan/storage.h"

namespace linnet {
namespace {

constexpr int64_t kLeast = int64_t{1} << 14, kMost = int64_t{1} << 22;  // elements at which a bucket is full

}  // namespace

std::vector<GradientBucket> gradient_buckets(const ParameterLayout& layout) {
  const int64_t enough = std::clamp(layout.trained_count() / 16, kLeast, kMost);
  std::vector<GradientBucket> buckets;
  size_t slot = 0;
  for (size_t range = 0; range < layout.ranges().size(); ++range) {
    const TrainedRange& trained = layout.ranges()[range];
    GradientBucket bucket{range, 0, 0};
    for (const size_t end = slot + layout.slots_in(trained); slot < end; ++slot) {
      // Up to the next parameter: between two there may be padding.
      const int64_t next = slot + 1 < end ? layout.trained()[slot + 1].offset - trained.offset : trained.count;
      bucket.count = next - bucket.first;
      if (bucket.count < enough && next < trained.count) continue;
      buckets.push_back(bucket);
      bucket = {range, next, 0};
    }
  }
  return buckets;
}

std::vector<NodeId> last_writers(const Plan& plan, const ParameterLayout& layout,
                                 const std::vector<GradientBucket>& buckets) {
  std::vector<NodeId> last(buckets.size(), -1);
  const StorageMap storages(plan.graph, true);
  for (const GraphInput& input : plan.graph.inputs())
    for (size_t i = 0; i < buckets.size(); ++i) {
      const GradientBucket& bucket = buckets[i];
      if (input.name != state::kGradient + layout.ranges()[bucket.range].suffix) continue;
      const size_t begin = static_cast<size_t>(bucket.first) * sizeof(float),
                   end = begin + static_cast<size_t>(bucket.count) * sizeof(float);
      for (const Access& write : storages.writes(storages.storage_of(input.value)))
        if (write.begin < end && write.end > begin) last[i] = std::max(last[i], write.node);
      for (const StateUpdate& copy : plan.copies)
        if (copy.state == input.value) last[i] = plan.graph.node_count();
    }
  return last;
}

void sort_by_completion(std::vector<GradientBucket>& buckets, const std::vector<NodeId>& last_writers,
                        Communicator& world) {
  std::vector<int32_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return last_writers[static_cast<size_t>(i)]; });
  broadcast(world, 0, std::as_writable_bytes(std::span(order)));
  std::vector<GradientBucket> sorted;
  for (const int32_t i : order) sorted.push_back(buckets[static_cast<size_t>(i)]);
  buckets = std::move(sorted);
}

std::vector<HeldBucket> held_buckets(const Plan& plan) {
  std::vector<HeldBucket> held;
  for (NodeId id = 0; id < plan.graph.node_count(); ++id) {
    const Node& node = plan.graph.node(id);
    if (node.op != &kHold) continue;
    const ValueId bucket = node.in[0];
    held.push_back({plan.graph.value(bucket).producer, id, plan.location[static_cast<size_t>(bucket)]});
  }
  return held;
}

}  // namespace linnet

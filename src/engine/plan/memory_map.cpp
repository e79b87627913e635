#include "engine/plan/memory_map.h"

#include <algorithm>

#include "engine/plan/storage.h"

namespace linnet {

std::vector<ArenaTenant> arena_tenants(const Plan& plan, RegionId arena) {
  const StorageMap storages(plan.graph, /*reuse=*/true);
  std::vector<ArenaTenant> tenants;
  for (ValueId id = 0; id < plan.graph.value_count(); ++id) {
    const Location& location = plan.location[static_cast<size_t>(id)];
    if (storages.storage_of(id) != id || storages.is_input(id) || location.region != arena) continue;
    const NodeId last = std::min(storages.last(id), plan.graph.node_count() - 1);
    for (const ArenaPart& part : storages.parts(id))
      tenants.push_back({id, location.offset + part.begin, part.end - part.begin, std::min(part.first, last), last});
  }
  std::ranges::stable_sort(tenants, {}, &ArenaTenant::first);
  return tenants;
}

std::vector<size_t> live_bytes(const Plan& plan, const std::vector<ArenaTenant>& tenants) {
  std::vector<int64_t> change(static_cast<size_t>(plan.graph.node_count()) + 1);
  for (const ArenaTenant& tenant : tenants) {
    change[static_cast<size_t>(tenant.first)] += static_cast<int64_t>(tenant.bytes);
    change[static_cast<size_t>(tenant.last) + 1] -= static_cast<int64_t>(tenant.bytes);
  }
  std::vector<size_t> live;
  int64_t now = 0;
  for (NodeId node = 0; node < plan.graph.node_count(); ++node)
    live.push_back(static_cast<size_t>(now += change[static_cast<size_t>(node)]));
  return live;
}

}  // namespace linnet

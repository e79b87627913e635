// For tests: plans that are written to a file, read in another process and run there give the same bits.
#pragma once
#include <cstring>
#include <string>

#include "engine/exec/executor.h"
#include "engine/plan/plan_file.h"

namespace linnet::testing {

// Regions whose bytes mean something before a plan runs.
inline bool is_kept(const Store::Region& region) {
  return region.kind != MemoryKind::kActivations && region.kind != MemoryKind::kWorkspace;
}

inline std::string region_bytes(const Store& store) {
  std::string bytes;
  for (size_t i = 0; i < store.regions().size(); ++i)
    if (const Store::Region& region = store.regions()[i]; is_kept(region) && region.bytes > 0)
      bytes.append(reinterpret_cast<const char*>(store.data(static_cast<RegionId>(i))), region.bytes);
  return bytes;
}

inline void fill_regions(const Store& store, const std::string& bytes) {
  size_t at = 0;
  for (size_t i = 0; i < store.regions().size(); ++i) {
    const Store::Region& region = store.regions()[i];
    if (!is_kept(region) || region.bytes == 0) continue;
    if (at + region.bytes > bytes.size()) fail_user("the file of regions ends early");
    std::memcpy(store.data(static_cast<RegionId>(i)), bytes.data() + at, region.bytes);
    at += region.bytes;
  }
}

// Runs the plans in the order of their names: the outputs of each, then the regions.
inline std::string run_plans(const NamedPlans& plans, const Store& store, const SharedRegions& shared) {
  std::string bytes;
  for (const auto& [name, plan] : plans) {
    const Executor executor(*plan, store, shared);
    ThreadPool pool(plan->threads);
    executor.run(pool);
    for (const GraphOutput& output : plan->graph.outputs()) {
      const TensorView& view = executor.output(output.name);
      bytes.append(view.as<const char>(), view.type.bytes());
    }
  }
  return bytes + region_bytes(store);
}

// The plans of an allocated store whose inputs hold something sensible. What the regions hold is changed.
void check_plan_file(const NamedPlans& plans, const Store& store, const SharedRegions& shared);

}  // namespace linnet::testing

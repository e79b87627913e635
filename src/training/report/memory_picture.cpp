#include "training/report/memory_picture.h"

#include "base/json.h"

namespace linnet {

namespace {

// A value that is filled piece by piece has a tenant for each piece.
std::string name_of(const TensorType& type, size_t bytes) {
  return bytes < type.bytes() ? "part of " + type.text() : type.text();
}

}  // namespace

std::string memory_picture(const Trainer& trainer, RegionId arena) {
  const NamedPlans plans = trainer.plans();
  const bool trains = trainer.options().training;
  const Plan* largest = nullptr;
  std::string largest_name;
  for (const auto& [name, plan] : plans)
    if ((!trains || !name.starts_with("evaluate")) && (!largest || plan->arena_bytes > largest->arena_bytes))
      largest = plan, largest_name = name;
  if (!largest) return "null";
  const PlanProfile profile = describe_plan(largest_name, *largest, arena);
  Json nodes = Json::array(), tenants = Json::array();
  for (const NodeProfile& node : profile.nodes)
    nodes.push_back({node.label, phase_name(node.phase), node.module, node.source});
  for (const ArenaTenant& tenant : profile.tenants)
    if (tenant.bytes > 0)
      tenants.push_back({name_of(largest->graph.value(tenant.value).type, tenant.bytes), tenant.offset, tenant.bytes,
                         tenant.first, tenant.last});
  return Json{{"name", trains ? "a training step" : "an evaluation"},
              {"plan", profile.name},
              {"arena_bytes", profile.arena_bytes},
              {"nodes", std::move(nodes)},
              {"live", profile.live},
              {"tenants", std::move(tenants)}}
      .dump();
}

}  // namespace linnet

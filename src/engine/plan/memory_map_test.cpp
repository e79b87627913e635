#include <gtest/gtest.h>
#include <algorithm>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"

namespace linnet {
namespace {
struct Planned {
  Planned() {
    Graph graph;
    const Tensor x = graph.input("x", {DType::kF32, {16, 32}}), w = graph.input("w", {DType::kF32, {32, 32}});
    Tensor h = x;
    for (int layer = 0; layer < 4; ++layer) h = relu(matmul(h, w));
    const Tensor loss = sum_to(h, {});
    const Tensor parameters[] = {w};
    graph.output("gradient", gradients(loss, parameters)[0]);
    for (const char* name : {"x", "w"}) {
      const RegionId region = store.add_region(name, MemoryKind::kBatch, 4096);
      store.bind(name, {region, 0}, 4096);
    }
    plan = make_plan(optimize(std::move(graph)), store, {arena, workspace}, {});
  }
  Store store;
  RegionId arena = store.add_region("arena", MemoryKind::kActivations, 0);
  RegionId workspace = store.add_region("workspace", MemoryKind::kWorkspace, 0);
  Plan plan;
};

TEST(MemoryMap, TenantsLieWithinTheArenaAndNeverMeet) {
  const Planned planned;
  const std::vector<ArenaTenant> tenants = arena_tenants(planned.plan, planned.arena);
  ASSERT_GT(tenants.size(), 4u);
  for (size_t i = 0; i < tenants.size(); ++i) {
    const ArenaTenant& a = tenants[i];
    EXPECT_LE(a.offset + a.bytes, planned.plan.arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const ArenaTenant& b = tenants[j];
      if (a.first > b.last || b.first > a.last) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << i << " and " << j;
    }
  }
}

TEST(MemoryMap, TheMostLiveBytesAreTheArenasLowerBound) {
  const Planned planned;
  const auto live = live_bytes(arena_tenants(planned.plan, planned.arena), planned.plan.graph.node_count());
  ASSERT_EQ(live.size(), static_cast<size_t>(planned.plan.graph.node_count()));
  EXPECT_EQ(*std::max_element(live.begin(), live.end()), planned.plan.arena_lower_bound);
}
}  // namespace
}  // namespace linnet

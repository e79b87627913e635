#include "engine/exec/executor.h"
#include <gtest/gtest.h>
#include <cmath>
#include <memory>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "error_of.h"

namespace linnet {
namespace {
// A graph over states s and t of 64 floats, in memory.
class Planned {
 public:
  explicit Planned(Graph graph) {
    for (const GraphInput& input : graph.inputs()) {
      const size_t bytes = graph.value(input.value).type.bytes();
      store.bind(input.name, {store.add_region(input.name, MemoryKind::kBatch, bytes), 0}, bytes);
    }
    shared = {store.add_region("arena", MemoryKind::kActivations, 0),
        store.add_region("workspace", MemoryKind::kWorkspace, 0)};
    plan = make_plan(optimize(std::move(graph)), store, shared, {});
    store.allocate();
    executor = std::make_unique<Executor>(plan, store, shared);
  }
  void run() {
    ThreadPool pool(1);
    executor->run(pool);
  }
  float* at(const char* name) { return store.as<float>(name); }

  Store store;
  SharedRegions shared;
  Plan plan;
  std::unique_ptr<Executor> executor;
};

const TensorType kState{DType::kF32, {64}};

TEST(Executor, AStateIsUpdatedInItsPlace) {
  Graph graph;
  const Tensor s = graph.input("s", kState);
  graph.update(s, exp(s * 0.5) + 1.0);
  Planned planned(std::move(graph));
  EXPECT_TRUE(planned.plan.copies.empty());
  EXPECT_EQ(planned.plan.arena_bytes, 0u);  // no memory but the state's
  planned.run();
  planned.run();
  EXPECT_FLOAT_EQ(planned.at("s")[63], std::exp(1.0f) + 1);
}

TEST(Executor, StatesThatSwapKeepTheirOldValuesUntilBothAreRead) {
  Graph graph;
  const Tensor s = graph.input("s", kState), t = graph.input("t", kState);
  graph.update(s, t * 1.0);
  graph.update(t, s * 1.0);
  Planned planned(std::move(graph));
  planned.at("s")[5] = 1, planned.at("t")[5] = 2;
  planned.run();
  EXPECT_EQ(planned.at("s")[5], 2);
  EXPECT_EQ(planned.at("t")[5], 1);
}

TEST(Executor, AStateReadAfterItsUpdateIsComputedIsCopiedLast) {
  Graph graph;
  const Tensor s = graph.input("s", kState);
  const Tensor next = exp(s);
  graph.output("old", s * 2.0);
  graph.output("next", next * 1.0);
  graph.update(s, next);
  Planned planned(std::move(graph));
  planned.at("s")[1] = 1;
  planned.run();
  EXPECT_EQ(planned.executor->output("old").as<float>()[1], 2);
  EXPECT_FLOAT_EQ(planned.at("s")[1], std::exp(1.0f));
}

TEST(Executor, PartsOfAStateAreUpdatedWhereTheyLie) {
  Graph graph;
  const Tensor s = graph.input("s", kState);
  const auto parts = split(s, 0, {16, 48});
  graph.update(s, concat(parts[0] * 2.0, std::array{parts[1] + 1.0}, 0));
  Planned planned(std::move(graph));
  EXPECT_TRUE(planned.plan.copies.empty());
  for (int i = 0; i < 64; ++i) planned.at("s")[i] = static_cast<float>(i);
  planned.run();
  EXPECT_EQ(planned.at("s")[15], 30);
  EXPECT_EQ(planned.at("s")[16], 17);
}

TEST(Executor, TheProofRefusesAPlanWhoseValuesMeet) {
  Graph graph;
  const Tensor s = graph.input("s", kState);
  const Tensor a = exp(s), b = exp(a);
  graph.output("y", split(a, 0, {32, 32})[0]);
  graph.output("z", b);
  Planned planned(std::move(graph));
  EXPECT_NO_THROW(verify_plan(planned.plan, planned.store, planned.shared));
  // Both results at one place: the first is overwritten before it is read.
  Plan broken = std::move(planned.plan);
  for (Location& location : broken.location)
    if (location.region == planned.shared.arena) location.offset = 0;
  EXPECT_THROW(verify_plan(broken, planned.store, planned.shared), Error);
}

TEST(Executor, AnInputThatIsNotBoundIsNamed) {
  Graph graph;
  graph.output("y", exp(graph.input("nowhere", kState)));
  Store store;
  const SharedRegions shared{
      store.add_region("arena", MemoryKind::kActivations, 0), store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  EXPECT_PRED2(
      has_text, error_of([&] { make_plan(std::move(graph), store, shared, {}); }, ErrorKind::kInternal), "nowhere");
}
}  // namespace
}  // namespace linnet

#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/attention/attention.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(MaskScores, LeavesTheVisibleKeys) {
  constexpr int64_t kBatch = 2, kHeads = 3, kQueries = 5, kKeys = 9;
  for (const bool causal : {false, true})
    for (const bool lengths : {false, true})
      for (const bool starts : {false, true})
        for (const int64_t window : {0, 2}) {
          if (window > 0 && !causal) continue;
          Graph graph;
          graph.output("y", mask_scores(graph.input("x", {DType::kF32, {kBatch, kHeads, kQueries, kKeys}}),
                                lengths ? graph.input("n", {DType::kI32, {kBatch}}) : Tensor{}, causal,
                                starts ? graph.input("s", {DType::kI32, {kBatch, kQueries}}) : Tensor{}, window));
          NamedTensors inputs;
          inputs["x"] = HostTensor({DType::kF32, {kBatch, kHeads, kQueries, kKeys}});
          inputs["n"] = HostTensor({DType::kI32, {kBatch}}, std::span<const int32_t>(std::array{9, 6}));
          inputs["s"] = HostTensor({DType::kI32, {kBatch, kQueries}});
          for (int32_t& s : inputs["s"].as<int32_t>()) s = 3;
          for (const NamedTensors& out : testing::run_everywhere(graph, inputs))
            for (int64_t i = 0; i < kBatch * kHeads * kQueries * kKeys; ++i) {
              const int64_t key = i % kKeys, last = i / kKeys % kQueries + kKeys - kQueries;
              const bool second = i / kKeys / kQueries / kHeads == 1;
              const bool visible = !(lengths && second && key >= 6) && !(causal && key > last) &&
                                   !(starts && key < 3) && !(window > 0 && key <= last - window);
              EXPECT_EQ(out.at("y")[i], visible ? 0 : -INFINITY) << i;
            }
        }
}
}  // namespace
}  // namespace linnet

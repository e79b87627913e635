#include <gtest/gtest.h>
#include <map>
#include "engine/ops/attention/attention.h"
#include "op_harness.h"

namespace linnet {
namespace {
// The distances from which on each bucket goes, as transformers' T5 has them.
void check(int64_t buckets, int64_t max_distance, bool bidirectional, const std::map<int64_t, int32_t>& from) {
  for (int64_t distance = -400; distance <= 400; ++distance)
    ASSERT_EQ(
        distance_bucket(distance, buckets, max_distance, bidirectional), std::prev(from.upper_bound(distance))->second)
        << distance;
}

TEST(DistanceBuckets, AreThoseOfTransformers) {
  check(32, 128, true,
      {{-400, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8}, {-7, 7}, {-6, 6}, {-5, 5},
          {-4, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0}, {1, 17}, {2, 18}, {3, 19}, {4, 20}, {5, 21}, {6, 22}, {7, 23},
          {8, 24}, {12, 25}, {16, 26}, {23, 27}, {32, 28}, {46, 29}, {64, 30}, {91, 31}});
  check(32, 128, false,
      {{-400, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25}, {-51, 24}, {-45, 23}, {-39, 22},
          {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16}, {-15, 15}, {-14, 14}, {-13, 13}, {-12, 12},
          {-11, 11}, {-10, 10}, {-9, 9}, {-8, 8}, {-7, 7}, {-6, 6}, {-5, 5}, {-4, 4}, {-3, 3}, {-2, 2}, {-1, 1},
          {0, 0}});
  check(8, 20, true, {{-400, 3}, {-6, 2}, {-1, 1}, {0, 0}, {1, 5}, {2, 6}, {7, 7}});
}

// A step of decoding sees what the last query of a sequence as long sees, whatever the other rows' positions are.
TEST(DistanceBuckets, OfQueriesAtPositions) {
  Graph graph;
  const DistanceBucketsAttrs one{.queries = 1, .keys = 10, .buckets = 8, .max_distance = 20, .bidirectional = false};
  DistanceBucketsAttrs all = one;
  all.queries = 10;
  const std::vector<int32_t> positions{6, 0, 9, 6, 3};
  const auto rows = static_cast<int64_t>(positions.size());
  graph.output("each", distance_buckets(graph, one, graph.input("positions", {DType::kI32, {rows, 1}})));
  graph.output("all", distance_buckets(graph, all));
  NamedTensors inputs;
  inputs["positions"] = HostTensor({DType::kI32, {rows, 1}}, std::span<const int32_t>(positions));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs))
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < 10; ++j)
        EXPECT_EQ(outputs.at("each")[r * 10 + j], outputs.at("all")[j + 9 - positions[static_cast<size_t>(r)]]);
}

TEST(DistanceBuckets, AllKernelsAgree) {
  for (const bool bidirectional : {false, true})
    for (const auto& [buckets, max_distance] : {std::pair{32, 128}, {8, 20}, {64, 1000}, {4, 3}}) {
      Graph graph;
      graph.output("y", distance_buckets(graph, {.queries = 1500,
                                                    .keys = 1400,
                                                    .buckets = buckets,
                                                    .max_distance = max_distance,
                                                    .bidirectional = bidirectional}));
      const std::vector<NamedTensors> results = testing::run_everywhere(graph, {});
      for (const NamedTensors& outputs : results) EXPECT_EQ(outputs.at("y").values(), results[0].at("y").values());
    }
}
}  // namespace
}  // namespace linnet

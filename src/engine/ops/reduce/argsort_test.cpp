#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include "engine/ops/reduce/reduce.h"
#include "op_harness.h"

namespace linnet {
namespace {
std::vector<double> orders_of(const std::vector<float>& x, Shape shape, bool descending, bool flat, int64_t count = 0) {
  Graph graph;
  graph.output("y", argsort_last(graph.input("x", {DType::kF32, shape}), descending, flat, count));
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, shape}, std::span<const float>(x));
  const std::vector<NamedTensors> everywhere = testing::run_everywhere(graph, inputs);
  for (const NamedTensors& outputs : everywhere) EXPECT_EQ(outputs.at("y").values(), everywhere[0].at("y").values());
  return everywhere[0].at("y").values();
}

TEST(Argsort, EqualElementsKeepTheirOrderAndNanIsLargest) {
  const std::vector<float> x{3, 1, 1, NAN, -0.0f, 0.0f, -INFINITY, NAN};
  EXPECT_EQ(orders_of(x, {2, 4}, false, false), (std::vector<double>{1, 2, 0, 3, 2, 0, 1, 3}));
  EXPECT_EQ(orders_of(x, {2, 4}, true, false), (std::vector<double>{3, 0, 1, 2, 3, 0, 1, 2}));
  EXPECT_EQ(orders_of(x, {2, 4}, false, true), (std::vector<double>{1, 2, 0, 3, 6, 4, 5, 7}));
}

TEST(Argsort, LongRows) {
  std::vector<float> x(3 * 1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 997);
  const std::vector<double> found = orders_of(x, {3, 1000}, false, true);
  std::vector<bool> seen(x.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<size_t>(found[i]);
    EXPECT_EQ(at / 1000, i / 1000);
    seen[at] = true;
    if (i % 1000 > 0) EXPECT_LE(x[static_cast<size_t>(found[i - 1])], x[at]);
  }
  EXPECT_TRUE(std::ranges::all_of(seen, [](bool is_seen) { return is_seen; }));
  for (const bool flat : {false, true})  // the first ones alone are the first of all
    for (const bool descending : {false, true}) {
      const std::vector<double> all = orders_of(x, {3, 1000}, descending, flat),
                                first = orders_of(x, {3, 1000}, descending, flat, 7);
      ASSERT_EQ(first.size(), 21u);
      for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i], all[i / 7 * 1000 + i % 7]);
    }
}
}  // namespace
}  // namespace linnet

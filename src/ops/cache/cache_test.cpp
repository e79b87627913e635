#include "ops/cache/cache.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/interpreter.h"

namespace linnet {
namespace {

constexpr int64_t kRows = 4, kLength = 3, kWidth = 2;

NamedTensors inputs(int32_t position, std::vector<int32_t> parents) {
  NamedTensors in;
  in["cache"] = HostTensor({DType::kF32, {kRows, kLength, kWidth}});
  for (size_t i = 0; i < in["cache"].as<float>().size(); ++i) in["cache"].as<float>()[i] = static_cast<float>(i);
  in["rows"] = HostTensor({DType::kF32, {kRows, 1, kWidth}});
  for (size_t i = 0; i < in["rows"].as<float>().size(); ++i) in["rows"].as<float>()[i] = static_cast<float>(100 + i);
  in["position"] = HostTensor({DType::kI32, {1}}, std::span<const int32_t>(&position, 1));
  in["parents"] = HostTensor({DType::kI32, {kRows}}, std::span<const int32_t>(parents));
  return in;
}

TEST(Cache, ARowIsWrittenAtItsPositionAndNowhereElse) {
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF32, {kRows, kLength, kWidth}});
  graph.output("y", cache_write(cache, graph.input("rows", {DType::kF32, {kRows, 1, kWidth}}),
                                graph.input("position", {DType::kI32, {1}})));
  const auto y = interpret(graph, inputs(1, {0, 1, 2, 3})).outputs.at("y");
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t t = 0; t < kLength; ++t)
      for (int64_t d = 0; d < kWidth; ++d) {
        const int64_t i = (row * kLength + t) * kWidth + d;
        EXPECT_EQ(y[i], t == 1 ? static_cast<double>(100 + row * kWidth + d) : static_cast<double>(i));
      }
  EXPECT_THROW(interpret(graph, inputs(3, {0, 1, 2, 3})), Error);
}

TEST(Cache, BeamsTakeTheHistoryOfTheirParents) {
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF32, {kRows, kLength, kWidth}});
  graph.output("y", cache_reorder(cache, graph.input("parents", {DType::kI32, {kRows}}),
                                  graph.input("position", {DType::kI32, {1}}), 2));
  for (const std::vector<int32_t>& parents : {std::vector<int32_t>{1, 0, 3, 3}, {0, 0, 2, 3}, {1, 1, 3, 2}}) {
    const auto y = interpret(graph, inputs(2, parents)).outputs.at("y");
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t i = 0; i < 2 * kWidth; ++i)
        EXPECT_EQ(y[row * kLength * kWidth + i],
                  static_cast<double>(parents[static_cast<size_t>(row)] * kLength * kWidth + i));
  }
  EXPECT_THROW(interpret(graph, inputs(2, {2, 1, 2, 3})), Error);  // another sentence's beam
}

}  // namespace
}  // namespace linnet

#include "engine/ops/cache/cache.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

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
  for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs(1, {0, 1, 2, 3})))
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t t = 0; t < kLength; ++t)
        for (int64_t d = 0; d < kWidth; ++d) {
          const int64_t i = (row * kLength + t) * kWidth + d;
          EXPECT_EQ(outputs.at("y")[i], t == 1 ? static_cast<double>(100 + row * kWidth + d) : static_cast<double>(i));
        }
  EXPECT_THROW(interpret(graph, inputs(3, {0, 1, 2, 3})), Error);
}

TEST(Cache, BeamsTakeTheHistoryOfTheirParents) {
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF32, {kRows, kLength, kWidth}});
  graph.output("y", cache_reorder(cache, graph.input("parents", {DType::kI32, {kRows}}),
                        graph.input("position", {DType::kI32, {1}}), 2));
  for (const std::vector<int32_t>& parents : {std::vector<int32_t>{1, 0, 3, 3}, {0, 0, 2, 3}, {1, 1, 3, 2}}) {
    for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs(2, parents)))
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t i = 0; i < kLength * kWidth; ++i) {
          const int64_t parent = i < 2 * kWidth ? parents[static_cast<size_t>(row)] : row;
          EXPECT_EQ(outputs.at("y")[row * kLength * kWidth + i], static_cast<double>(parent * kLength * kWidth + i));
        }
  }
  EXPECT_THROW(interpret(graph, inputs(2, {2, 1, 2, 3})), Error);  // another sentence's beam
}

// Groups are at positions of their own: beyond a group's largest position nothing moves.
TEST(Cache, AGroupMovesAsFarAsItsOwnPositions) {
  Graph graph;
  graph.output(
      "y", cache_reorder(graph.input("cache", {DType::kF32, {kRows, kLength, kWidth}}),
               graph.input("parents", {DType::kI32, {kRows}}), graph.input("positions", {DType::kI32, {kRows}}), 2));
  const std::vector<int32_t> parents{1, 1, 2, 2}, positions{1, 1, 3, 3};
  NamedTensors in = inputs(0, parents);
  in["positions"] = HostTensor({DType::kI32, {kRows}}, std::span<const int32_t>(positions));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, in))
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t i = 0; i < kLength * kWidth; ++i) {
        const auto r = static_cast<size_t>(row);
        const int64_t from = i < positions[r] * kWidth ? parents[r] : row;
        EXPECT_EQ(outputs.at("y")[row * kLength * kWidth + i], static_cast<double>(from * kLength * kWidth + i));
      }
}

// As a decoder does it: the state is updated in place, rows are a part of a fused projection, each row has its place.
TEST(Cache, StatesAreUpdatedInPlace) {
  constexpr int64_t kWide = 24;
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF32, {kRows, kLength, kWide}});
  const Tensor fused = graph.input("fused", {DType::kF32, {kRows, 1, 2 * kWide}}) * 1.0;
  const Tensor parents = graph.input("parents", {DType::kI32, {kRows}});
  const Tensor positions = graph.input("positions", {DType::kI32, {kRows}});
  const Tensor written = cache_write(cache, split_evenly(fused, -1, 2)[1], positions);
  graph.output("y", cache_reorder(written, parents, positions, 4));
  NamedTensors in;
  in["cache"] = HostTensor({DType::kF32, {kRows, kLength, kWide}});
  for (float& v : in["cache"].as<float>()) v = static_cast<float>(&v - in["cache"].as<float>().data());
  in["fused"] = HostTensor({DType::kF32, {kRows, 1, 2 * kWide}});
  for (float& v : in["fused"].as<float>()) v = static_cast<float>(1000 + (&v - in["fused"].as<float>().data()));
  in["parents"] = HostTensor({DType::kI32, {kRows}}, std::span<const int32_t>(std::array{3, 0, 2, 0}));
  in["positions"] = HostTensor({DType::kI32, {kRows}}, std::span<const int32_t>(std::array{2, 0, 1, 1}));
  const std::vector<NamedTensors> results = testing::run_everywhere(graph, in);
  for (const NamedTensors& outputs : results) {
    EXPECT_EQ(outputs.at("y").values(), results[0].at("y").values());
    EXPECT_EQ(outputs.at("y")[1 * kLength * kWide], 0);                                    // row 1 follows row 0
    EXPECT_EQ(outputs.at("y")[kWide], static_cast<double>(1000 + 3 * 2 * kWide + kWide));  // row 0 follows row 3
  }
}

TEST(Cache, SequencesFillTheirSlotsAndNoOthers) {
  constexpr int64_t kSlots = 6, kEntries = 3, kWide = 5;
  Graph graph;
  const Tensor fused = graph.input("fused", {DType::kF32, {2, kEntries, 2 * kWide}}) * 1.0;
  graph.output("y", cache_fill(graph.input("cache", {DType::kF32, {kSlots, kLength + 1, kWide}}),
                        split_evenly(fused, -1, 2)[1], graph.input("slots", {DType::kI32, {2}})));
  NamedTensors in;
  in["cache"] = HostTensor({DType::kF32, {kSlots, kLength + 1, kWide}});
  in["fused"] = HostTensor({DType::kF32, {2, kEntries, 2 * kWide}});
  for (float& v : in["fused"].as<float>()) v = static_cast<float>(1 + (&v - in["fused"].as<float>().data()));
  const auto run = [&](std::array<int32_t, 2> slots) {
    in["slots"] = HostTensor({DType::kI32, {2}}, std::span<const int32_t>(slots));
    return testing::run_everywhere(graph, in);
  };
  for (const NamedTensors& outputs : run({4, 1}))
    for (int64_t slot = 0; slot < kSlots; ++slot)
      for (int64_t t = 0; t <= kLength; ++t)
        for (int64_t d = 0; d < kWide; ++d) {
          const int64_t row = slot == 4 ? 0 : slot == 1 ? 1 : -1;
          const int64_t want = row < 0 || t >= kEntries ? 0 : 1 + (row * kEntries + t) * 2 * kWide + kWide + d;
          EXPECT_EQ(outputs.at("y")[(slot * (kLength + 1) + t) * kWide + d], static_cast<double>(want));
        }
  for (const NamedTensors& outputs : run({-1, 2}))  // the first goes nowhere
    for (int64_t slot = 0; slot < kSlots; ++slot)
      EXPECT_EQ(outputs.at("y")[slot * (kLength + 1) * kWide] != 0, slot == 2) << slot;
  in["slots"] = HostTensor({DType::kI32, {2}}, std::span<const int32_t>(std::array{0, 6}));
  EXPECT_THROW(interpret(graph, in), Error);
}
}  // namespace
}  // namespace linnet

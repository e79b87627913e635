#include "engine/ops/resident/resident.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "op_harness.h"

namespace linnet {
namespace {
HostTensor cursor_at(int32_t step) { return {{DType::kI32, {1}}, std::span<const int32_t>(&step, 1)}; }

// Widths that divide into words of 16, 4 and 1 bytes.
TEST(Resident, RowsAreGatheredInTheOrderOfTheStep) {
  constexpr int64_t kCount = 9, kRows = 4;
  const std::array<int32_t, 12> order{0, 1, 2, 3, 8, 3, ~0, 3, 5, 4, ~8, ~4};
  for (const DType dtype : {DType::kU8, DType::kI32, DType::kF32})
    for (const int64_t width : {1, 5, 12, 16, 784}) {
      Graph graph;
      // Beside labels, and more of them than one kernel takes.
      const Tensor labels = graph.input("labels", {DType::kI32, {kCount}});
      const std::vector<Tensor> y =
          gather_rows(graph.input("order", {DType::kI32, {12}}), graph.input("cursor", {DType::kI32, {1}}),
              std::array{labels, labels, labels, labels, labels, labels, labels, labels,
                  graph.input("data", {dtype, {kCount, width, 1}}), labels},
              kRows);
      graph.output("y", y[8]);
      graph.output("label", y[0]);
      graph.output("last", y[9]);
      NamedTensors in;
      in["labels"] = HostTensor({DType::kI32, {kCount}});
      for (int32_t i = 0; i < kCount; ++i) in["labels"].as<int32_t>()[static_cast<size_t>(i)] = 70 + i;
      in["order"] = HostTensor({DType::kI32, {12}}, std::span<const int32_t>(order));
      in["data"] = HostTensor({dtype, {kCount, width, 1}});
      const auto value = [&](int64_t row, int64_t i) { return static_cast<double>((row * 29 + i) % 251); };
      for (int64_t i = 0; i < kCount * width; ++i) {
        const double v = value(i / width, i % width);
        const auto at = static_cast<size_t>(i);
        if (dtype == DType::kU8) in["data"].as<uint8_t>()[at] = static_cast<uint8_t>(v);
        if (dtype == DType::kI32) in["data"].as<int32_t>()[at] = static_cast<int32_t>(v);
        if (dtype == DType::kF32) in["data"].as<float>()[at] = static_cast<float>(v);
      }
      for (int32_t step = 0; step < 3; ++step) {
        in["cursor"] = cursor_at(step);
        for (const NamedTensors& out : testing::run_everywhere(graph, in))
          for (int64_t r = 0; r < kRows; ++r) {
            const int32_t row = order[static_cast<size_t>(step * kRows + r)];
            for (const char* name : {"label", "last"}) ASSERT_EQ(out.at(name)[r], row < 0 ? -1 : 70 + row);
            for (int64_t i = 0; i < width; ++i) {
              const double expected = row >= 0 ? value(row, i) : dtype == DType::kI32 ? -1 : value(~row, i);
              ASSERT_EQ(out.at("y")[r * width + i], expected) << "step " << step;
            }
          }
      }
      in["cursor"] = cursor_at(3);
      EXPECT_THROW(interpret(graph, in), Error);
    }
}

TEST(Resident, TheRowOfTheStepIsPickedAndWritten) {
  constexpr int64_t kSteps = 5, kWidth = 3;
  Graph graph;
  const Tensor cursor = graph.input("cursor", {DType::kI32, {1}});
  const std::vector<Tensor> picked = pick_rows(cursor, std::array{graph.input("table", {DType::kF32, {kSteps, kWidth}}),
                                                           graph.input("words", {DType::kI32, {kSteps, 4}})});
  graph.output("floats", picked[0]);
  graph.output("integers", picked[1]);
  std::vector<Tensor> scalars;
  for (const char* name : {"a", "b", "c"}) scalars.push_back(graph.input(name, {DType::kF32, {}}));
  const RowWrite written = write_row(graph.input("table", {DType::kF32, {kSteps, kWidth}}), cursor, scalars);
  graph.output("table", written.table);
  graph.output("next", written.cursor);
  NamedTensors in;
  in["table"] = HostTensor({DType::kF32, {kSteps, kWidth}});
  in["words"] = HostTensor({DType::kI32, {kSteps, 4}});
  for (float& v : in["table"].as<float>()) v = static_cast<float>(&v - in["table"].as<float>().data());
  for (int32_t& v : in["words"].as<int32_t>()) v = static_cast<int32_t>(&v - in["words"].as<int32_t>().data());
  float number = 100;
  for (const char* name : {"a", "b", "c"})
    in[name] = HostTensor({DType::kF32, {}}, std::span<const float>(&++number, 1));
  for (int32_t step = 0; step < kSteps; ++step) {
    in["cursor"] = cursor_at(step);
    for (const NamedTensors& out : testing::run_everywhere(graph, in)) {
      EXPECT_EQ(out.at("next")[0], step + 1);
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(out.at("integers")[i], step * 4 + i);
      for (int64_t i = 0; i < kWidth; ++i) EXPECT_EQ(out.at("floats")[i], static_cast<double>(step * kWidth + i));
      for (int64_t i = 0; i < kSteps * kWidth; ++i)
        EXPECT_EQ(out.at("table")[i], static_cast<double>(i / kWidth == step ? 101 + i % kWidth : i));
    }
  }
  in["cursor"] = cursor_at(kSteps);
  EXPECT_THROW(interpret(graph, in), Error);
}
}  // namespace
}  // namespace linnet

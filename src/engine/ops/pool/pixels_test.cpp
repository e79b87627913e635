#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/pool/pool.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Pixels, EachChannelHasItsScale) {
  for (const auto& [pixels, channels] : {std::pair{1000, 1}, {701, 3}, {64, 4}}) {
    std::vector<double> mean, deviation;
    for (int c = 0; c < channels; ++c) mean.push_back(0.1 * c), deviation.push_back(0.5 + c);
    Graph graph;
    graph.output("y",
        scale_pixels(graph.input("x", {DType::kU8, {pixels, channels}}), pixel_scaling(channels, mean, deviation)));
    NamedTensors inputs;
    inputs["x"] = HostTensor({DType::kU8, {pixels, channels}});
    for (int i = 0; i < pixels * channels; ++i)
      inputs["x"].as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7);
    for (const NamedTensors& out : testing::run_everywhere(graph, inputs))
      for (int i = 0; i < pixels * channels; ++i) {
        const double c = i % channels, x = static_cast<uint8_t>(i * 7);
        ASSERT_NEAR(out.at("y")[i], (x / 255 - 0.1 * c) / (0.5 + c), 1e-6);
      }
  }
  EXPECT_THROW(pixel_scaling(3, {1, 2}), Error);
  EXPECT_THROW(pixel_scaling(1, {}, {0}), Error);
}
}  // namespace
}  // namespace linnet

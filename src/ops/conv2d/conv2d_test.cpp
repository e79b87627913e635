#include "ops/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include "op_harness.h"

namespace linnet {
namespace {

void check(Shape x, Shape weight, int64_t stride, int64_t padding) {
  SCOPED_TRACE(x.text() + " " + weight.text() + " " + std::to_string(stride) + " " + std::to_string(padding));
  for (const bool full : {false, true})  // of weights beside bf16
    testing::check_op(
        {.inputs = {{x}, {.shape = weight, .full = full}},
         .build = [=](Graph&, const auto& in) { return std::vector{conv2d(in[0], in[1], stride, padding)}; },
         .differentiate = full,
         .bf16_tolerance = 2e-2});
}

TEST(Conv2d, ValuesAndGradients) {
  check({2, 5, 6, 1}, {3, 3, 3, 1}, 1, 1);
  check({1, 7, 5, 3}, {2, 3, 3, 3}, 1, 0);
  check({3, 4, 4, 5}, {17, 1, 1, 5}, 1, 0);
  check({2, 8, 7, 2}, {4, 3, 5, 2}, 2, 1);
  check({2, 9, 9, 3}, {5, 7, 7, 3}, 2, 3);
  check({2, 6, 6, 16}, {18, 3, 3, 16}, 1, 1);
  check({3, 17, 21, 6}, {70, 3, 3, 6}, 1, 1);  // tiles beside tiles, sums in two parts
  check({5, 16, 16, 5}, {3, 4, 4, 5}, 3, 2);
}

// A filter that is one in the middle returns the image.
TEST(Conv2d, KnowsUpFromDown) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {1, 3, 3, 1}}), w = graph.input("w", {DType::kF32, {1, 3, 3, 1}});
  graph.output("y", conv2d(x, w, 1, 1));
  const std::vector<float> image{1, 2, 3, 4, 5, 6, 7, 8, 9}, left{0, 0, 0, 1, 0, 0, 0, 0, 0};
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {1, 3, 3, 1}}, std::span<const float>(image));
  inputs["w"] = HostTensor({DType::kF32, {1, 3, 3, 1}}, std::span<const float>(left));
  EXPECT_EQ(interpret(graph, inputs).outputs.at("y").values(), (std::vector<double>{0, 1, 2, 0, 4, 5, 0, 7, 8}));
}

TEST(Conv2d, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {1, 4, 4, 3}});
  const auto message = [&](Shape weight) {
    try {
      conv2d(x, graph.input("w" + weight.text(), {DType::kF32, weight}));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message({2, 3, 3, 1}).find("channels 3 and 1 differ"), std::string::npos);
  EXPECT_NE(message({2, 5, 5, 3}).find("larger than the padded image"), std::string::npos);
}

}  // namespace
}  // namespace linnet

#include "engine/ops/conv2d/conv2d.h"
#include <gtest/gtest.h>
#include <tuple>
#include "engine/ops/pointwise/pointwise.h"
#include "error_of.h"
#include "op_harness.h"

namespace linnet {
namespace {
void check(Shape x, Shape weight, int64_t stride, int64_t padding, int64_t dilation = 1, int64_t groups = 1,
    double tolerance = 2e-5) {
  SCOPED_TRACE(x.text() + " " + weight.text() + " " + std::to_string(stride) + " " + std::to_string(padding) + " " +
               std::to_string(dilation) + " " + std::to_string(groups));
  for (const bool full : {false, true})  // of weights beside bf16
    testing::check_op({.inputs = {{x}, {.shape = weight, .full = full}},
        .build = [=](Graph&,
                     const auto& in) { return std::vector{conv2d(in[0], in[1], stride, padding, dilation, groups)}; },
        .tolerance = tolerance,
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

// Few channels and many filters: the weight gradient's vectors hold filters.
TEST(Conv2d, FewChannels) {
  check({2, 9, 9, 3}, {16, 3, 3, 3}, 1, 1);
  check({3, 11, 10, 3}, {48, 7, 7, 3}, 2, 3);
  check({1, 6, 6, 2}, {32, 3, 2, 2}, 1, 1);  // one partial sum
}

TEST(Conv2d, Dilation) {
  check({2, 9, 8, 3}, {4, 3, 3, 3}, 1, 2, 2);
  check({1, 11, 12, 2}, {3, 3, 2, 2}, 2, 1, 3);
  check({1, 13, 9, 2}, {3, 3, 3, 2}, 2, 2, 2);  // every tap meets the same rows modulo the stride: others get nothing
  check({1, 12, 12, 4}, {5, 2, 3, 4}, 3, 0, 2);
  check({1, 3, 3, 2}, {2, 3, 3, 2}, 1, 4, 1);  // more padding than filter
}

TEST(Conv2d, Groups) {
  check({2, 6, 5, 4}, {6, 3, 3, 2}, 1, 1, 1, 2);
  check({1, 7, 7, 6}, {9, 3, 3, 2}, 2, 1, 2, 3);
  check({2, 5, 5, 8}, {16, 1, 1, 4}, 1, 0, 1, 2);
  check({1, 5, 6, 3}, {6, 3, 3, 1}, 1, 1, 1, 3);  // two filters to a channel
}

TEST(Conv2d, OneFilterForEachChannel) {
  check({2, 9, 11, 5}, {5, 3, 3, 1}, 1, 1, 1, 5);
  check({1, 12, 12, 17}, {17, 3, 3, 1}, 2, 1, 1, 17);
  check({1, 11, 13, 32}, {32, 5, 2, 1}, 1, 2, 2, 32);
  check({1, 9, 20, 3}, {3, 1, 15, 1}, 1, 0, 1, 3);
  check({2, 7, 8, 4}, {4, 2, 2, 1}, 3, 1, 1, 4);
  check({1, 1, 1, 20}, {20, 3, 3, 1}, 1, 1, 1, 20);
  check({3, 4, 1, 150}, {150, 3, 3, 1}, 1, 1, 1, 150);  // two blocks of channels
}

// Sizes at which images are cut into strips, sums into blocks and weights into panels.
TEST(Conv2d, BlocksBesideBlocks) {
  check({1, 20, 24, 128}, {2, 3, 1, 128}, 1, 1);  // strips, and channels that are copied further apart
  check({2, 5, 5, 100}, {33, 3, 3, 100}, 2, 1);   // sums in two blocks
  // Several images to a task, dy copied. The 9,216 terms of the loss nearly cancel.
  check({9, 3, 3, 6}, {256, 1, 1, 6}, 2, 0, 1, 1, 1e-4);
  check({1, 40, 31, 70}, {70, 2, 1, 1}, 1, 1, 1, 70);
}

// Filters of 3 x 3 by Winograd's filtering in tiles of 2 x 2 and 4 x 4 results: odd and even sizes, images smaller than
// a tile, other paddings, several tasks, images beside images, weight gradients by sums over taps and over tiles.
TEST(Conv2d, MinimalFiltering) {
  using enum ConvolutionMethod;
  for (const auto& [x, weight, padding, method] :
      {std::tuple{Shape{1, 6, 6, 32}, Shape{32, 3, 3, 32}, 1, kWinograd}, {{2, 6, 5, 16}, {48, 3, 3, 16}, 1, kWinograd},
          {{1, 7, 8, 64}, {32, 3, 3, 64}, 0, kWinograd}, {{1, 4, 3, 32}, {32, 3, 3, 32}, 2, kWinograd},
          {{1, 2, 1, 32}, {32, 3, 3, 32}, 1, kWinograd}, {{1, 5, 5, 160}, {32, 3, 3, 160}, 1, kWinograd},
          {{9, 5, 9, 32}, {16, 3, 3, 32}, 1, kWinograd}, {{1, 8, 8, 32}, {32, 3, 3, 32}, 1, kWinograd4x4},
          {{2, 7, 5, 16}, {48, 3, 3, 16}, 1, kWinograd4x4}, {{1, 6, 9, 64}, {32, 3, 3, 64}, 0, kWinograd4x4},
          {{1, 3, 3, 32}, {32, 3, 3, 32}, 4, kWinograd4x4}, {{1, 17, 16, 16}, {48, 3, 3, 16}, 1, kWinograd4x4},
          {{3, 13, 11, 32}, {32, 3, 3, 32}, 2, kWinograd4x4}, {{1, 8, 8, 16}, {16, 3, 3, 16}, 1, kWinograd4x4},
          {{7, 15, 12, 16}, {16, 3, 3, 16}, 1, kWinograd4x4}, {{6, 12, 13, 16}, {16, 3, 3, 16}, 2, kWinograd4x4},
          {{5, 15, 14, 32}, {16, 3, 3, 32}, 0, kWinograd4x4}, {{5, 16, 13, 16}, {80, 3, 3, 16}, 1, kWinograd4x4}}) {
    Graph graph;
    const Shape y =
        conv2d(graph.input("x", {DType::kF32, x}), graph.input("w", {DType::kF32, weight}), 1, padding).shape();
    ASSERT_EQ(convolution_method(conv2d_sizes(x, weight, y, {.padding = padding})), method)
        << x.text() << ' ' << weight.text();
    // The terms of the largest loss nearly cancel.
    check(x, weight, 1, padding, 1, 1, y.elements() > 50'000 ? 5e-5 : 2e-5);
  }
}

// What the passes make a part of a convolution has the bits of the ops apart (the plan against the interpreter), with
// any number of threads: a sum in two blocks, strips, edges of tiles, groups, depthwise, a matrix product.
TEST(Conv2d, WhatFollowsIsPartOfIt) {
  if (testing::tested_backend()) GTEST_SKIP() << "the CPU alone fuses it";
  struct Case {
    Shape x, weight;
    int64_t stride = 1, padding = 1, groups = 1;
  };
  for (const Case& c : {Case{{2, 5, 6, 3}, {5, 3, 3, 3}}, {{2, 5, 5, 100}, {33, 3, 3, 100}, 2},
           {{1, 20, 24, 128}, {2, 3, 1, 128}}, {{3, 17, 21, 6}, {70, 3, 3, 6}}, {{2, 6, 5, 4}, {6, 3, 3, 2}, 1, 1, 2},
           {{1, 12, 12, 17}, {17, 3, 3, 1}, 2, 1, 17}, {{2, 9, 7, 32}, {64, 3, 3, 32}}, {{2, 6, 5, 32}, {64, 3, 3, 32}},
           {{2, 9, 7, 16}, {16, 3, 3, 16}}, {{3, 4, 4, 5}, {17, 1, 1, 5}, 1, 0}}) {
    SCOPED_TRACE(c.x.text() + " " + c.weight.text());
    Graph graph;
    const Shape y = conv2d(graph.input("x", {DType::kF32, c.x}), graph.input("w", {DType::kF32, c.weight}), c.stride,
        c.padding, 1, c.groups)
                        .shape();
    const Shape row{y[3]};
    const auto check_fused = [&](const auto& follow) {
      testing::check_op({.inputs = {{c.x}, {.shape = c.weight, .full = true}, {.shape = row, .full = true},
                             {.shape = row, .full = true}, {y}},
          .build =
              [&](Graph&, const auto& in) {
                const Tensor product = conv2d(in[0], in[1], c.stride, c.padding, 1, c.groups);
                return std::vector{follow(product, in[2], in[3], in[4])};
              },
          .tolerance = 2e-5,
          .differentiate = false});
    };
    check_fused([](Tensor x, Tensor scale, Tensor bias, Tensor z) { return relu(x * scale + bias + z); });
    check_fused([](Tensor x, Tensor, Tensor bias, Tensor) { return relu(x + bias); });
    check_fused([](Tensor x, Tensor scale, Tensor, Tensor z) { return z + x * scale; });
  }
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
    return error_of([&] { conv2d(x, graph.input("w" + weight.text(), {DType::kF32, weight})); }, ErrorKind::kShape);
  };
  EXPECT_PRED2(has_text, message({2, 3, 3, 1}), "channels 3 and 1 differ");
  EXPECT_PRED2(has_text, message({2, 5, 5, 3}), "larger than the padded image");
  EXPECT_THROW(conv2d(x, graph.input("three filters", {DType::kF32, {4, 3, 3, 1}}), 1, 1, 1, 3), Error);
  EXPECT_THROW(conv2d(x, graph.input("wide", {DType::kF32, {4, 3, 3, 3}}), 1, 0, 2), Error);
}
}  // namespace
}  // namespace linnet

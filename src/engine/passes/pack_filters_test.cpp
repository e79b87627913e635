#include <gtest/gtest.h>
#include <span>
#include <vector>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/recurrent/recurrent.h"
#include "engine/passes/passes.h"
#include "engine/plan/store.h"
#include "models/nn/forward.h"
#include "models/nn/module.h"

namespace linnet {
namespace {
// Convolutions by taps and by Winograd's filtering, of one pixel with a stride, and with filters that fill no panel.
// Those of one are computed of a parameter.
struct Network : Module {
  Parameter first{this, "first", {64, 7, 7, 3}, normal_init(0.1)};
  Parameter second{this, "second", {64, 3, 3, 64}, normal_init(0.1)};
  Parameter shortcut{this, "shortcut", {96, 1, 1, 64}, normal_init(0.1)};
  Parameter last{this, "last", {5, 3, 3, 96}, normal_init(0.1)};

  Tensor operator()(Tensor images) {
    const Tensor x = relu(conv2d(images, tanh(first.tensor() * 2.0), 2, 3));
    return conv2d(conv2d(relu(conv2d(x, second, 1, 1) + x), shortcut, 2), last, 1, 1);
  }
};

const TensorType kImages{DType::kF32, {1, 30, 27, 3}}, kLarger{DType::kF32, {2, 40, 41, 3}};

std::vector<float> computed(bool pack_weights, int threads, size_t function, int loads = 1) {
  Network network;
  std::vector<Forward::Function> functions;
  for (const TensorType& type : {kImages, kLarger})
    functions.emplace_back(
        [&network, type](Trace& trace) { trace.graph().output("y", network(trace.input("images", type))); });
  Forward forward(network, functions, {.threads = threads, .pack_weights = pack_weights});
  ThreadPool pool(1);
  for (int i = 0; i < loads; ++i)
    forward.load([&](const ParameterTarget& to) { forward.layout().initialize_parameters(5, to.flat, pool); });
  std::vector<float> images(static_cast<size_t>(kLarger.shape.elements()));
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  forward.set("images", images);
  const auto y = forward.run(function).output("y");
  return {y.begin(), y.end()};
}

TEST(PackFilters, BitsAreThoseOfFiltersPackedInEveryRun) {
  for (const size_t function : {0, 1}) {
    const std::vector<float> expected = computed(false, 1, function);
    EXPECT_EQ(computed(true, 1, function), expected);
    EXPECT_EQ(computed(true, 3, function), expected);
    EXPECT_EQ(computed(true, 2, function, /*loads=*/2), expected);
  }
}

size_t packable(const TensorType& images, const TensorType& others) {
  Network network;
  const ParameterLayout layout(network);
  Trace trace({.layout = &layout});
  trace.graph().output("y", network(trace.input("images", images)));
  trace.graph().output("z", network(trace.input("others", others)));
  const Graph graph = trace.finish();
  return packable_filters(std::span(&graph, 1), cpu_backend()).size();
}

TEST(PackFilters, OnceForEachUse) { EXPECT_EQ(packable(kImages, kLarger), 3U); }

TEST(ComputeOnce, ArithmeticOnParametersAlone) {
  Network network;
  const ParameterLayout layout(network);
  Trace trace({.layout = &layout});
  trace.graph().output("y", network(trace.input("images", kImages)));
  const Graph graph = trace.finish();
  const auto split = compute_once(graph, {state::kParameters}, "0");
  ASSERT_TRUE(split);
  ASSERT_EQ(split->first.size(), 1U);
  // Without the parameter's shape, a product and tanh.
  EXPECT_EQ(split->rest.node_count() + 3, graph.node_count()) << dump(split->rest);
  EXPECT_EQ(packable_filters(std::span(&split->rest, 1), cpu_backend()).size(), 4U);
  EXPECT_FALSE(compute_once(split->rest, {state::kParameters}, "1"));
}

// A recurrent layer reads its weight in an order of its own: it is turned once, though that computes nothing.
TEST(ComputeOnce, WeightsInTheOrderOfAKernel) {
  Graph graph;
  const Tensor flat = graph.input(state::kParameters, {DType::kF32, {64}});
  const Tensor projected = graph.input("projected", {DType::kF32, {3, 2, 16}}), bias = slice(flat, 0, 0, 16),
               state = graph.input("state", {DType::kF32, {2, 4}});
  const RecurrentLayer layer{projected, reshape(flat, {16, 4}), bias, state, state};
  graph.output("y", recurrent(layer, {.kind = RecurrentKind::kLstm}).hidden);
  const auto split = compute_once(graph, {state::kParameters}, "0");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->first.size(), 1U);
  for (const Node& node : split->rest.nodes()) EXPECT_NE(node.op, &kPermute) << dump(split->rest);
}
}  // namespace
}  // namespace linnet

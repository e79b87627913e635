#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <random>
#include "engine/exec/interpreter.h"
#include "engine/ops/kernel.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// A backend whose products have row sums: the CPU's reference kernels.
const Backend& with_row_sums() {
  static const Backend backend{&cpu_device(), cpu_backend().ops};
  return backend;
}

// Linear layers on [2, 5, width], the second with the weight and the bias of the first, and all their gradients. The
// first layer's sum is added to the second's before the product is computed that it could join.
Graph layers() {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2, 5, 8}}), w = graph.input("w", {DType::kF32, {8, 8}}),
               b = graph.input("b", {DType::kF32, {8}}), v = graph.input("v", {DType::kF32, {3, 8}}),
               c = graph.input("c", {DType::kF32, {3}});
  const auto linear = [](Tensor in, Tensor weight, Tensor bias) { return matmul(in, weight, false, true) + bias; };
  const Tensor y = linear(tanh(linear(tanh(linear(x, w, b)), w, b)), v, c);
  const Tensor loss = sum_to(y * y, {});
  graph.output("loss", loss);
  const std::vector<Tensor> d = gradients(loss, std::vector{x, w, b, v, c});
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  return graph;
}

int sums_of_rows(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(),
      [&](const Node& node) { return is(node, kReduce) && graph.value(node.out[0]).type.shape.rank() == 1; }));
}

int products_with_sums(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(
      graph.nodes(), [](const Node& node) { return is(node, kMatmul) && node.attrs.as<MatmulAttrs>().row_sums; }));
}

NamedTensors inputs_of(const Graph& graph) {
  std::mt19937 random(3);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    for (float& v : tensor.as<float>()) v = std::uniform_real_distribution<float>(-1, 1)(random);
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

void expect_equal_results(const Graph& one, const Graph& other, double tolerance = 1e-4) {
  const NamedTensors in = inputs_of(one), expected = interpret(one, in).outputs, found = interpret(other, in).outputs;
  for (const auto& [name, tensor] : expected)
    for (int64_t i = 0; i < tensor.type().shape.elements(); ++i)
      ASSERT_NEAR(found.at(name)[i], tensor[i], tolerance * (1 + std::abs(tensor[i]))) << name << " " << i;
}

TEST(FuseBiasGradient, TheSumJoinsTheProductThatReadsTheSameRows) {
  const Graph graph = layers();
  const Graph fused = fuse_bias_gradient(graph, with_row_sums());
  verify(fused);
  EXPECT_EQ(sums_of_rows(graph), 3);
  EXPECT_EQ(sums_of_rows(fused), 1);
  EXPECT_EQ(products_with_sums(fused), 2);
  expect_equal_results(graph, fused);
}

// Sums of earlier layers' gradients, and what becomes of the products after it.
TEST(FuseBiasGradient, AllPassesTogetherKeepTheGradients) {
  const Graph graph = layers();
  const Graph fused = optimize(graph.clone(), {.backend = &with_row_sums(), .verify = true});
  EXPECT_EQ(sums_of_rows(fused), 1);
  EXPECT_EQ(products_with_sums(fused), 2);
  expect_equal_results(graph, fused);
}

TEST(FuseBiasGradient, OnTheCpuSumsStayAlone) {
  EXPECT_EQ(products_with_sums(optimize(layers())), 0);
  EXPECT_EQ(sums_of_rows(optimize(layers())), 3);
}

// The sum is needed before the product can be computed.
TEST(FuseBiasGradient, ASumThatTheProductDependsOnStaysAlone) {
  Graph graph;
  const Tensor dy = graph.input("dy", {DType::kF32, {6, 4}}), x = graph.input("x", {DType::kF32, {6, 4}});
  const Tensor sums = sum_to(dy, {4});
  graph.output("dw", matmul(dy, x * sums, true));
  graph.output("sums", sums);
  EXPECT_EQ(products_with_sums(fuse_bias_gradient(graph, with_row_sums())), 0);
}
int groups_of(const Graph& graph, size_t layers) {
  return static_cast<int>(std::ranges::count_if(
      graph.nodes(), [&](const Node& node) { return is(node, kWeightGradients) && node.in.size() == 2 * layers; }));
}

TEST(GroupWeightGradients, OfSmallLayersAreOneNode) {
  Graph graph;
  Tensor x = graph.input("x", {DType::kF32, {10, 8}});
  std::vector<Tensor> parameters;
  for (const int64_t outputs : {16, 24, 3, 8}) {  // 3: no whole access
    const std::string name = std::to_string(parameters.size());
    const Tensor w = graph.input("w" + name, {DType::kF32, {outputs, x.dim(1)}});
    const Tensor b = graph.input("b" + name, {DType::kF32, {outputs}});
    x = tanh(matmul(x, w, false, true) + b);
    parameters.insert(parameters.end(), {w, b});
  }
  const std::vector<Tensor> d = gradients(sum_to(x * x, {}), parameters);
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  const Graph lowered = lower_precision(graph, Precision::kBf16, Precision::kBf16);
  const Graph grouped = group_weight_gradients(fuse_bias_gradient(lowered, with_row_sums()), with_row_sums());
  verify(grouped);
  EXPECT_EQ(groups_of(grouped, 2), 1);  // without the layer of 3 outputs and the one that reads them
  EXPECT_EQ(products_with_sums(grouped), 2);
  expect_equal_results(lowered, grouped, 2e-2);
  EXPECT_EQ(groups_of(group_weight_gradients(lowered, cpu_backend()), 2), 0);
  EXPECT_EQ(groups_of(group_weight_gradients(graph, with_row_sums()), 2), 0) << "in fp32";
}

// Such as by ranks that exchange gradients while the backward pass goes on.
TEST(GroupWeightGradients, AGradientThatIsReadBeforeTheLastStaysApart) {
  Graph graph;
  std::vector<Tensor> products;
  for (const char* name : {"0", "1", "2", "3"}) {
    const Tensor dy = graph.input(std::string("dy") + name, {DType::kF32, {6, 16}});
    products.push_back(matmul(dy, tanh(graph.input(std::string("x") + name, {DType::kF32, {6, 8}})), true));
    if (products.size() == 2) graph.output("early", exp(products[1]));
  }
  for (size_t i : {0, 2, 3}) graph.output("d" + std::to_string(i), products[i]);
  graph = lower_precision(graph, Precision::kBf16, Precision::kBf16);
  const Graph grouped = group_weight_gradients(graph, with_row_sums());
  verify(grouped);
  EXPECT_EQ(groups_of(grouped, 3), 1);
  expect_equal_results(graph, grouped, 2e-2);
}
// Of a weight that is itself a product: the second gradient is made of the first.
TEST(GroupWeightGradients, AProductOfAnotherOneStaysApart) {
  Graph graph;
  const auto input = [&](const char* name, Shape shape) { return graph.input(name, {DType::kF32, shape}); };
  const Tensor dw = matmul(input("dy", {6, 16}), input("x", {6, 8}), true);
  graph.output("dv", matmul(input("u", {16, 24}), dw, true));
  const Graph grouped =
      group_weight_gradients(lower_precision(graph, Precision::kBf16, Precision::kBf16), with_row_sums());
  verify(grouped);
  EXPECT_EQ(groups_of(grouped, 2), 0);
}

TEST(GroupWeightGradients, FewOfManyRowsStayApart) {
  for (const int64_t rows : {4096, 4097}) {
    Graph graph;
    for (const char* name : {"0", "1"})
      graph.output(std::string("d") + name, matmul(graph.input(std::string("dy") + name, {DType::kF32, {rows, 16}}),
                                                graph.input(std::string("x") + name, {DType::kF32, {rows, 8}}), true));
    graph = lower_precision(graph, Precision::kBf16, Precision::kBf16);
    EXPECT_EQ(groups_of(group_weight_gradients(graph, with_row_sums()), 2), rows == 4096 ? 1 : 0);
  }
}
}  // namespace
}  // namespace linnet

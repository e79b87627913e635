#include <gtest/gtest.h>
#include "engine/exec/interpreter.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// Lookups times `factor`, and the table's gradient.
Graph lookups(double factor) {
  Graph graph;
  const Tensor table = graph.input("table", {DType::kF32, {5, 3}}), ids = graph.input("ids", {DType::kI32, {2, 4}});
  const Tensor y = embedding(table, ids) * factor;
  const Tensor loss = sum_to(y * y * y, {});
  graph.output("loss", loss);
  graph.output("dtable", gradients(loss, std::vector{table})[0]);
  return graph;
}

double scale_of(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (is(node, kEmbeddingGrad)) return node.attrs.as<EmbeddingGradAttrs>().scale;
  return 0;
}

TEST(FuseEmbeddingScale, TheTablesGradientIsMultipliedOnceItIsAddedUp) {
  const Backend backend{&cpu_device(), cpu_backend().ops};  // with the reference kernels
  const Graph graph = lookups(1.5), fused = fuse_embedding_scale(graph, backend);
  verify(fused);
  EXPECT_EQ(scale_of(fused), 1.5);
  EXPECT_EQ(fused.node_count(), graph.node_count() - 1);
  NamedTensors in;
  in["table"] = HostTensor({DType::kF32, {5, 3}});
  for (float& v : in["table"].as<float>()) v = 0.1f * static_cast<float>(1 + &v - in["table"].as<float>().data());
  in["ids"] = HostTensor({DType::kI32, {2, 4}}, std::span<const int32_t>(std::array{0, 3, 3, 1, 3, 0, 2, 3}));
  const NamedTensors expected = interpret(graph, in).outputs, found = interpret(fused, in).outputs;
  for (int64_t i = 0; i < 15; ++i) EXPECT_NEAR(found.at("dtable")[i], expected.at("dtable")[i], 1e-4) << i;
}

TEST(FuseEmbeddingScale, NotOnTheCpu) { EXPECT_EQ(scale_of(optimize(lookups(1.5))), 1); }
}  // namespace
}  // namespace linnet

#include "engine/ir/graph.h"
#include <gtest/gtest.h>
#include "engine/ir/op.h"
#include "error_of.h"

namespace linnet {
namespace {
const OpDef kSum{.name = "sum", .infer = [](const InferArgs& args) -> std::vector<TensorType> {
                   expect_inputs(args, 2);
                   expect(args.in[0] == args.in[1], "got " + args.in[0].text() + " and " + args.in[1].text());
                   return {args.in[0]};
                 }};

Tensor sum(At a, Tensor b) { return a.value.graph->add_one(kSum, std::array{a.value, b}, {}, a.where); }

TEST(Graph, AShapeErrorNamesOpShapesLineAndModule) {
  Graph graph;
  graph.enter_scope("h.3.mlp");
  const Tensor a = graph.input("a", {DType::kF32, {8, 16}}), b = graph.input("b", {DType::kF32, {8, 17}});
  const std::string line = std::to_string(__LINE__ + 1);
  const std::string message = error_of([&] { sum(a, b); }, ErrorKind::kShape);
  EXPECT_EQ(message, "graph_test.cpp:" + line + ": sum: got f32[8, 16] and f32[8, 17] (in h.3.mlp)");
}

TEST(Graph, ATensorOfAnotherGraphIsAnError) {
  Graph one, two;
  const Tensor a = one.input("a", {DType::kF32, {2}}), b = two.input("b", {DType::kF32, {2}});
  EXPECT_THROW(sum(a, b), Error);
  EXPECT_THROW(sum(a, Tensor{}), Error);
}

TEST(Graph, AnInputIsKnownByItsNameAndKeepsItsType) {
  Graph graph;
  const Tensor a = graph.input("w", {DType::kF32, {2, 3}});
  EXPECT_EQ(graph.input("w", {DType::kF32, {2, 3}}).id, a.id);
  EXPECT_THROW(graph.input("w", {DType::kF32, {3, 2}}), Error);
}

TEST(Graph, ViewsResolveToTheirRoot) {
  Graph graph;
  const Tensor base = graph.input("x", {DType::kF32, {4, 6}});
  const Tensor part = sum(base, base);
  graph.set_view(part.id, {base.id, 0, Shape{6, 1}});
  const Root root = root_of(graph, part.id);
  EXPECT_EQ(root.value, base.id);
  EXPECT_EQ(root.strides, (Shape{6, 1}));
  EXPECT_NO_THROW(verify(graph));
  graph.set_view(part.id, {base.id, 1, Shape{6, 1}});
  EXPECT_THROW(verify(graph), Error);
}

TEST(Graph, DumpNamesEveryNodeWithItsPlace) {
  Graph graph;
  graph.enter_scope("encoder");
  const Tensor a = graph.input("a", {DType::kF32, {2}});
  graph.output("y", sum(a, a));
  const std::string text = dump(graph);
  EXPECT_NE(text.find("%1 = sum(%0, %0) : f32[2]   # graph_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("(in encoder)"), std::string::npos);
  EXPECT_NE(text.find("output y = %1"), std::string::npos);
}
}  // namespace
}  // namespace linnet

#include <gtest/gtest.h>
#include <string>
#include "engine/exec/interpreter.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"

namespace linnet {
namespace {
const TensorType kImages{DType::kF32, {2, 4, 5, 3}}, kRow{DType::kF32, {3}};

struct Inputs {
  explicit Inputs(Graph& graph)
      : x(graph.input("x", kImages)), shortcut(graph.input("shortcut", kImages)), weight(graph.input("weight", kRow)),
        bias(graph.input("bias", kRow)) {}
  Tensor x, shortcut, weight, bias;
  BatchNormResult norm() const { return batch_norm(x, weight, bias); }
};

// y's sum of cubes and its gradients, and what the optimized graph does with batch norms, by its labels in order.
template <class Build> std::string fused(const Build& build) {
  Graph graph;
  const Inputs in(graph);
  const Tensor y = build(graph, in), loss = sum_to(y * y * y, {});
  graph.output("loss", loss);
  const std::vector<Tensor> d = gradients(loss, std::vector{in.x, in.shortcut, in.weight, in.bias});
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);

  NamedTensors inputs;
  std::vector<float> values(120), rows{0.5F, -1.5F, 2.0F}, shifts{0.25F, -0.5F, 0.75F};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 37 + 11) % 101) / 50 - 1;
  inputs["x"] = HostTensor(kImages, std::span<const float>(values));
  for (float& value : values) value = 0.5F - value * value;
  inputs["shortcut"] = HostTensor(kImages, std::span<const float>(values));
  inputs["weight"] = HostTensor(kRow, std::span<const float>(rows));
  inputs["bias"] = HostTensor(kRow, std::span<const float>(shifts));
  const auto plain = interpret(graph, inputs).outputs;
  const Graph optimized = optimize(graph.clone());
  const auto result = interpret(optimized, inputs).outputs;
  for (const auto& [name, tensor] : plain) EXPECT_EQ(result.at(name).values(), tensor.values()) << name;

  std::string text;
  for (const Node& node : optimized.nodes())
    if (std::string(node.op->name).starts_with("batch_norm")) text += (text.empty() ? "" : ", ") + label_of(node);
  return text;
}

TEST(FuseBatchNorm, TakesInReluBothWays) {
  EXPECT_EQ(fused([](Graph&, const Inputs& in) { return relu(in.norm().y); }), "batch_norm+relu, batch_norm_grad+relu");
}

TEST(FuseBatchNorm, TakesInAResidualThatIsThereBefore) {
  EXPECT_EQ(fused([](Graph&, const Inputs& in) { return relu(in.norm().y + in.shortcut); }),
      "batch_norm+residual+relu, batch_norm_grad");
  EXPECT_EQ(fused([](Graph&, const Inputs& in) { return relu(in.shortcut + in.norm().y); }),
      "batch_norm+residual+relu, batch_norm_grad");
  // A shortcut that is computed after the norm.
  EXPECT_EQ(fused([](Graph&, const Inputs& in) {
    const Tensor y = in.norm().y;
    return relu(y + in.shortcut * in.weight);
  }),
      "batch_norm, batch_norm_grad");
}

TEST(FuseBatchNorm, LeavesWhatOthersRead) {
  EXPECT_EQ(fused([](Graph& graph, const Inputs& in) {
    const Tensor y = in.norm().y;
    graph.output("y", y);
    return relu(y);
  }),
      "batch_norm, batch_norm_grad+relu");
  EXPECT_EQ(fused([](Graph&, const Inputs& in) { return in.norm().y + in.shortcut; }), "batch_norm, batch_norm_grad");
  EXPECT_EQ(fused([](Graph&, const Inputs& in) {
    const Tensor y = in.norm().y;
    return relu(y) + y;
  }),
      "batch_norm, batch_norm_grad");
}

// Statistics stay results of their own.
TEST(FuseBatchNorm, KeepsStatistics) {
  EXPECT_EQ(fused([](Graph& graph, const Inputs& in) {
    const BatchNormResult norm = in.norm();
    graph.output("mean", norm.mean * 2.0), graph.output("variance", norm.variance);
    return relu(norm.y);
  }),
      "batch_norm+relu, batch_norm_grad+relu");
}
}  // namespace
}  // namespace linnet

// With precision = "bf16" on the CPU, training steps of whole models keep their activations in bf16.
#include <gtest/gtest.h>
#include "app/bench/bench.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/passes/passes.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
class StoredActivations : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  }

  Graph step(std::optional<DType> storage) const {
    return optimize(single_graph(layout_, workload_.loss, {.optimizer = workload_.optimizer}),
        {.precision = Precision::kBf16, .storage_type = storage, .recompute = true});
  }

  const Workload workload_ = make_workload(GetParam());
  const ParameterLayout layout_{*workload_.model};
};

// BERT alone has casts, of one hidden state and its gradient: it looks up masked positions, and tables are fp32.
TEST_P(StoredActivations, EveryKernelTakesThemAsTheyAre) {
  const Graph graph = step(DType::kBF16);
  int64_t cast = 0;
  for (const Node& node : graph.nodes())
    if (std::string_view(node.op->name) == "cast") cast += graph.value(node.in[0]).type.shape.elements();
  EXPECT_EQ(cast, GetParam() == std::string_view("bert-base") ? 2 * 4 * 512 * 768 : 0);
}

TEST_P(StoredActivations, TheBackwardPassKeepsHalfTheMemory) {
  const size_t before = saved_bytes(step({})), after = saved_bytes(step(DType::kBF16));
  EXPECT_GT(after, 0u);
  EXPECT_LE(static_cast<double>(after), 0.54 * static_cast<double>(before));
}

INSTANTIATE_TEST_SUITE_P(
    Workloads, StoredActivations, ::testing::Values("r-64", "gpt-6l", "gpt2-124m", "bert-base"), [](const auto& info) {
      std::string name = info.param;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });
}  // namespace
}  // namespace linnet

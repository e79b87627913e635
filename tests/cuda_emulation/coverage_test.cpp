// No step of a reference workload meets an op that the GPU has no kernel for. (Tests that run steps would not see it
// for the ops that a library computes: there the emulation falls back to the CPU's kernels.)
#include <gtest/gtest.h>
#include <cstring>
#include "app/bench/bench.h"
#include "cuda_emulation/emulated_backend.h"
#include "engine/ops/op_table.h"
#include "engine/passes/passes.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
bool has_kernel(const KernelQuery& query) {
  bool is_listed = false;
  for (const BackendOp& entry : cuda_ops()) {
    if (std::strcmp(entry.op, query.node.op->name) != 0) continue;
    is_listed = true;
    for (const Kernel& kernel : entry.kernels)
      if (!kernel.supports || kernel.supports(query)) return true;
  }
  // What only the module has, by NVIDIA's libraries, is checked there.
  return !is_listed && query.node.op->by_gpu_library;
}

void expect_kernels(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> in, out;
    std::string types;
    for (const ValueId id : node.in) in.push_back(graph.value(id).type), types += " " + in.back().text();
    for (const ValueId id : node.out) out.push_back(graph.value(id).type);
    EXPECT_TRUE(has_kernel({node, in, out, 1})) << node.op->name << types << " {" << node.attrs.text() << "}";
  }
}

class Coverage : public ::testing::TestWithParam<const char*> {};

TEST_P(Coverage, EveryNodeHasAKernel) {
  const Workload workload = make_workload(GetParam());
  const ParameterLayout layout(*workload.model, workload.groups);
  for (const bool reduced : {false, true}) {
    SCOPED_TRACE(reduced ? "bf16" : "fp32");
    PassOptions passes{.precision = reduced ? Precision::kBf16 : Precision::kF32, .recompute = true};
    if (reduced) passes.storage_type = DType::kBF16;
    passes.backend = &emulated_backend().backend;
    expect_kernels(optimize(single_graph(layout, workload.loss, {.optimizer = workload.optimizer}), passes));
    passes.recompute = false;
    expect_kernels(optimize(evaluate_graph(layout, workload.loss, "parameters"), passes));
    expect_kernels(optimize(apply_graph(layout, {.optimizer = workload.optimizer}), passes));
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, Coverage,
    ::testing::Values("r-64", "cnn-128", "gpt-6l", "gpt2-124m", "bert-base", "lora-135m", "lora-135m-int4"),
    [](const auto& info) {
      std::string name = info.param;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });
}  // namespace
}  // namespace linnet

// Without a GPU: cuDNN must have deterministic kernels for the graphs we build, for an H200 that is only described.
// cuDNN loads libcuda.so.1 first; without a driver the toolkit's stub, which has that name, takes its place.
#include "engine/device/cuda/cudnn_graph.h"
#include <dlfcn.h>
#include <gtest/gtest.h>
#include "engine/ops/attention/attention_graph_cuda.h"
#include "engine/ops/conv2d/conv2d_graph_cuda.h"
#include "h200.h"

namespace linnet {
namespace {
class CudnnGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudnn_version() == 0) GTEST_SKIP() << "libcudnn.so.9 is not on this machine";
#ifdef LINNET_CUDA_STUB
    if (!dlopen("libcuda.so.1", RTLD_NOW)) dlopen(LINNET_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL);
#endif
    if (!dlopen("libcuda.so.1", RTLD_NOW)) GTEST_SKIP() << "neither a driver nor the toolkit's stub of it is here";
  }
};

AttentionProblem attention_of(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t size) {
  AttentionProblem p{.batch = batch,
      .heads = heads,
      .kv_heads = heads,
      .queries = queries,
      .keys = keys,
      .size = size,
      .scale = 0.125f};
  const bool itself = queries == keys;
  const int64_t width = heads * size, q_row = itself ? 3 * width : width, k_row = (itself ? 3 : 2) * width;
  p.q = p.dq = {queries * q_row, q_row};
  p.k = p.v = p.dk = p.dv = {keys * k_row, k_row};
  p.o = {queries * width, width};
  return p;
}

void expect_plans(const AttentionProblem& problem, const CudnnTarget& target) {
  const AttentionPlan forward = attention_forward_plan(problem, target, std::nullopt);
  EXPECT_GE(forward.candidates, 1u) << "forward " << problem.text() << ": " << forward.why;
  const AttentionPlan backward = attention_backward_plan(problem, target, std::nullopt);
  EXPECT_GE(backward.candidates, 1u) << "backward " << problem.text() << ": " << backward.why;
  EXPECT_GT(backward.workspace, 0u) << "the gradient of the scores is kept in it";
}

TEST_F(CudnnGraphs, AttentionOfTheModelsThatAreMeasured) {
  const CudnnTarget target = CudnnTarget::described(kH200);
  AttentionProblem gpt2 = attention_of(8, 12, 1024, 1024, 64), bert = attention_of(32, 12, 512, 512, 64);
  gpt2.causal = true, bert.lengths = true;
  std::vector<AttentionProblem> problems{gpt2, bert};
  for (const int64_t length : {64, 384}) {
    AttentionProblem encoder = attention_of(16, 8, length, length, 32), decoder = encoder;
    encoder.lengths = decoder.lengths = decoder.causal = true;
    problems.insert(problems.end(), {encoder, decoder, attention_of(16, 8, length, length, 32)});
  }
  AttentionProblem cross = attention_of(16, 8, 64, 384, 32);
  cross.lengths = true;
  problems.push_back(cross);
  for (AttentionProblem problem : problems) {
    expect_plans(problem, target);
    problem.kept = 0.9, problem.kept_scale = 1 / 0.9;
    expect_plans(problem, target);
  }
}

TEST_F(CudnnGraphs, AttentionOfOddSizesAndSharedKeys) {
  const CudnnTarget target = CudnnTarget::described(kH200);
  AttentionProblem shared = attention_of(4, 8, 128, 128, 64);
  shared.kv_heads = 2, shared.causal = true;
  expect_plans(shared, target);
  for (const bool lengths : {false, true}) {
    AttentionProblem odd = attention_of(4, 8, 77, 53, 40);
    odd.lengths = lengths;
    expect_plans(odd, target);
  }
  expect_plans(attention_of(2, 4, 256, 256, 128), target);
}

TEST_F(CudnnGraphs, ConvolutionsForwardAndBackwardInEveryPrecision) {
  using Kind = ConvolutionPass;
  const CudnnTarget target = CudnnTarget::described(kH200);
  struct Sizes {
    Shape x, weight, y;
    int64_t stride, padding;
  };
  for (const Sizes& s : {Sizes{{32, 28, 28, 64}, {128, 3, 3, 64}, {32, 28, 28, 128}, 1, 1},
           {{16, 56, 56, 64}, {128, 3, 3, 64}, {16, 28, 28, 128}, 2, 1},
           {{16, 14, 14, 256}, {512, 1, 1, 256}, {16, 14, 14, 512}, 1, 0}})
    for (const Kind kind : {Kind::kForward, Kind::kInputGradient, Kind::kWeightGradient})
      for (const int mode : {0, 1, 2}) {  // strict fp32, TF32, bf16
        const ConvolutionProblem problem{.kind = kind,
            .x = s.x,
            .weight = s.weight,
            .y = s.y,
            .stride = s.stride,
            .padding = s.padding,
            .dtype = mode == 2 ? DType::kBF16 : DType::kF32,
            .tensor_cores = mode != 0};
        std::string why;
        EXPECT_GE(convolution_graph(problem).graph->candidates(target, &why).size(), 1u) << problem.text() << why;
      }
}
}  // namespace
}  // namespace linnet

// Without a GPU: cuDNN must have deterministic kernels for the graphs we build, for an H200 that is only described.
// cuDNN loads libcuda.so.1 first; without a driver the toolkit's stub, which has that name, takes its place.
#include "device/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "h200.h"
#include "ops/attention/attention_graph_cuda.h"

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
  const AttentionPlan forward = attention_forward_plan(problem, target, true);
  EXPECT_GE(forward.candidates, 1u) << "forward " << problem.text() << ": " << forward.why;
  const AttentionPlan backward = attention_backward_plan(problem, target, true);
  EXPECT_GE(backward.candidates, 1u) << "backward " << problem.text() << ": " << backward.why;
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

// NHWC, as fast convolutions want it.
CudnnValue image(CudnnGraph& graph, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w) {
  return graph.tensor(type, {n, c, h, w}, {h * w * c, 1, w * c, c});
}

TEST_F(CudnnGraphs, ConvolutionsForwardAndBackward) {
  const CudnnTarget target = CudnnTarget::described(kH200);
  const CudnnGraph::Convolution same{.before = {1, 1}, .after = {1, 1}, .strides = {1, 1}, .dilations = {1, 1}};
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
    std::string why;
    const auto count = [&](auto describe) {
      CudnnGraph graph;
      const CudnnValue x = image(graph, type, 32, 64, 28, 28), w = image(graph, type, 128, 64, 3, 3),
                       y = image(graph, type, 32, 128, 28, 28);
      describe(graph, x, w, y);
      return graph.candidates(target, &why).size();
    };
    EXPECT_GE(count([&](CudnnGraph& g, auto x, auto w, auto y) { g.convolution(same, x, w, y); }), 1u) << why;
    EXPECT_GE(count([&](CudnnGraph& g, auto x, auto w, auto y) { g.convolution_input_gradient(same, y, w, x); }), 1u)
        << why;
    EXPECT_GE(count([&](CudnnGraph& g, auto x, auto w, auto y) { g.convolution_weight_gradient(same, x, y, w); }), 1u)
        << why;
  }
}

}  // namespace
}  // namespace linnet

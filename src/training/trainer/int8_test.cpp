// Training with PassOptions::int8: products of linear layers and of their inputs' gradients in int8.
#include <gtest/gtest.h>
#include <cmath>
#include <random>
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 96, kWords = 60, kWidth = 48;

struct Net : Module {
  Embedding table{this, "table", kWords, kWidth, normal_init(0.3)};
  Linear first{this, "first", kWidth, 80}, second{this, "second", 80, kWidth};
  Tensor operator()(Tensor ids) {
    const Tensor x = table(ids);
    return x + second(gelu(first(x)));
  }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const TensorType ids{DType::kI32, {kRows}};
    const Tensor hidden = net(trace.input("x", ids));
    return {linear_cross_entropy_sum(hidden, net.table.weight, {}, trace.input("y", ids)), trace.number(kRows)};
  };
}

TrainerOptions options_with(bool int8, int threads = 1) {
  TrainerOptions options{.optimizer = {.kind = OptimizerAttrs::Kind::kAdam, .clip_norm = 1}, .threads = threads};
  options.passes.precision = Precision::kBf16, options.passes.int8 = int8;
  if (gemm_has_bf16()) options.passes.storage_type = DType::kBF16;
  return options;
}

struct Training {
  explicit Training(const TrainerOptions& options, const std::vector<ParameterGroup>& groups = {})
      : learner(net, loss_of(net), options, {}, groups) {
    std::vector<int32_t> x, y;
    for (int32_t i = 0; i < kRows; ++i) x.push_back(i % kWords), y.push_back((i * 7 + 3) % kWords);
    learner.set<int32_t>("x", x);
    learner.set<int32_t>("y", y);
  }
  Trainer& trainer() { return learner.trainer(); }
  double step(int64_t step) {
    if (!trainer().options().accumulates()) return trainer().step(0, 0.003, step).loss;
    for (int64_t micro = 0; micro < trainer().options().accumulate_steps; ++micro) trainer().accumulate(0, step, micro);
    return trainer().apply(0.003, step).loss;
  }
  std::vector<float> values() {
    const float* first = trainer().state().flat("parameters");
    return {first, first + trainer().state().layout().trained_count()};
  }
  int count(const std::string& op) {
    int found = 0;
    for (const Node& node : trainer().plans().by_name().at("train.0")->graph.nodes()) found += node.op->name == op;
    return found;
  }
  Net net;
  SingleShapeLearner learner;
};

TEST(Int8Training, MultipliesInInt8AndLearnsAsInFp32) {
  Training exact({.optimizer = options_with(false).optimizer}), rounded(options_with(true));
  EXPECT_EQ(rounded.count("quantized_matmul"), 4);  // of two layers, forward and backward
  EXPECT_EQ(rounded.count("quantize_weight"), 4);
  EXPECT_EQ(rounded.count("matmul"), 2);  // gradients of the weights
  double first = 0, in_fp32 = 0, in_int8 = 0;
  for (int64_t step = 1; step <= 150; ++step) {
    in_fp32 = exact.step(step), in_int8 = rounded.step(step);
    if (step == 1) first = in_fp32;
  }
  ASSERT_LT(in_fp32, 0.3 * first);
  EXPECT_NEAR(in_int8, in_fp32, 0.05 * (first - in_fp32));
  EXPECT_NE(in_int8, in_fp32);
}

TEST(Int8Training, HasTheSameBitsOnAnyNumberOfThreadsAndAfterAResume) {
  const testing::TemporaryFolder folder;
  const std::string state = folder / "state.safetensors";
  for (const int64_t micro_batches : {1, 2}) {
    const auto options = [&](int threads) {
      TrainerOptions made = options_with(true, threads);
      made.accumulate_steps = micro_batches;
      return made;
    };
    Training one(options(1)), three(options(3));
    for (int64_t step = 1; step <= 4; ++step) EXPECT_EQ(one.step(step), three.step(step));
    EXPECT_EQ(one.values(), three.values());
    save_training_state(state, one.trainer(), {.step = 4}, {});
    Training resumed(options(2));
    load_training_state(state, resumed.trainer());
    for (int64_t step = 5; step <= 8; ++step) EXPECT_EQ(one.step(step), resumed.step(step));
    EXPECT_EQ(one.values(), resumed.values());
  }
}

// As adapters are trained: the gradient of a frozen layer's input is a product with the numbers of its packed weight.
TEST(Int8Training, ReadsAFrozenWeightThatIsStoredInInt8) {
  const std::vector<ParameterGroup> groups{
      {.patterns = {"first.*", "table.*"}}, {.patterns = {"*"}, .frozen = true, .storage = WeightFormat::kInt8Blocks}};
  Training rounded(options_with(true), groups), exact({.optimizer = options_with(false).optimizer}, groups);
  EXPECT_EQ(rounded.count("quantized_matmul"), 4);
  double first = 0, last = 0, in_fp32 = 0;
  for (int64_t step = 1; step <= 100; ++step) {
    last = rounded.step(step), in_fp32 = exact.step(step);
    if (step == 1) first = last;
  }
  EXPECT_NEAR(last, in_fp32, 0.05 * (first - in_fp32));
}
}  // namespace
}  // namespace linnet

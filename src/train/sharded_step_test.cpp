// Steps of several data shards, with threads as ranks: the number of ranks does not change a bit.
#include "train/sharded_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/comm_testing.h"
#include "nn/layers.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "train/checkpoint.h"
#include "train/learner.h"

namespace linnet {
namespace {

constexpr int64_t kRows = 5, kChannels = 3, kWidth = 6000, kShards = 4;

// Batch normalization has buffers; the head has parameters enough for several slices.
struct Net : Module {
  BatchNorm norm{this, "norm", kChannels};
  Linear head{this, "head", kChannels, kWidth};
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    return {sum_to(square(net.head(net.norm(x)) + trace.number(-0.5)), {}), trace.number(kRows)};
  };
}

std::vector<float> batch(int64_t step, int64_t shard) {
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * kChannels; ++i)
    x.push_back(std::sin(static_cast<float>(1.7 * i + 0.3 * shard + 5 * step)) + static_cast<float>(shard));
  return x;
}

struct Result {
  std::vector<float> parameters, average;  // with buffers
  std::vector<double> losses, norms;
  bool operator==(const Result&) const = default;
};

// What rank 0 has after three steps; all ranks must have the same.
Result train(int ranks, bool divided) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& world) {
    Net net;
    SingleShapeLearner learner(net, loss_of(net),
                               {.optimizer = {.weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9},
                                .shards = {kShards, world.rank(), ranks},
                                .divide_moments = divided});
    Trainer& trainer = learner.trainer();
    ShardedStep shards(trainer, world);
    Result& result = results[static_cast<size_t>(world.rank())];
    for (int64_t step = 1; step <= 3; ++step) {
      shards.begin();
      for (int64_t i = 0; i < kShards / ranks; ++i) {
        learner.set<float>("x", batch(step, world.rank() * kShards / ranks + i));
        shards.accumulate(0, step, 0);
        shards.add();
      }
      shards.finish();
      const StepReport report = trainer.apply(0.01, step);
      shards.share_update();
      result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
      EXPECT_EQ(report.tokens, kShards * kRows);
    }
    shards.share_average();
    const auto values = [&](const char* state, int64_t count) {
      return std::vector<float>(trainer.state(state), trainer.state(state) + count);
    };
    result.parameters = values("parameters", trainer.layout().stored_count());
    result.average = values("ema", trainer.layout().trained_count());
  });
  for (const Result& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

TEST(ShardedStep, TheNumberOfRanksDoesNotChangeABit) {
  const Result alone = train(1, false);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const int ranks : {2, 4})
    for (const bool divided : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (divided ? " ranks, divided moments" : " ranks"));
      EXPECT_EQ(train(ranks, divided), alone);
    }
}

// Each shard begins with the statistics of the step before; the mean over the shards is what remains.
TEST(ShardedStep, RunningStatisticsAreTheMeanOverTheShards) {
  Net net;
  SingleShapeLearner learner(net, loss_of(net), {.shards = {kShards, 0, 1}});
  ShardedStep shards(learner.trainer(), single_process());
  shards.begin();
  double expected = 0;
  for (int64_t shard = 0; shard < kShards; ++shard) {
    const std::vector<float> x = batch(1, shard);
    for (int64_t row = 0; row < kRows; ++row)
      expected += 0.1 * x[static_cast<size_t>(row * kChannels)] / kRows / kShards;
    learner.set<float>("x", x);
    shards.accumulate(0, 1, 0);
    shards.add();
  }
  shards.finish();
  EXPECT_NEAR(learner.parameter("norm.running_mean")[0], expected, 1e-6);
}

}  // namespace
}  // namespace linnet

// Buffers: state that training graphs update, through batch normalization's running statistics.
#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 6, kChannels = 3;

struct Net : Module {
  BatchNorm norm{this, "norm", kChannels};
  Linear head{this, "head", kChannels, 1};
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    const Tensor y = trace.input("y", {DType::kF32, {kRows, 1}});
    const Tensor normed = net.norm(x);
    trace.graph().output("normed", normed * 1.0);
    return {sum_to(square(net.head(normed) - y), {}), trace.number(kRows)};
  };
}

double element(int64_t row, int64_t channel) { return std::sin(1.7 * row + 3.1 * channel) * (1 + channel) + channel; }

struct Training {
  explicit Training(const TrainerOptions& options = {}, LossFunction (*loss)(Net&) = loss_of)
      : learner(net, loss(net), options) {
    std::vector<float> x, y;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t channel = 0; channel < kChannels; ++channel) x.push_back(static_cast<float>(element(row, channel)));
      y.push_back(std::cos(static_cast<float>(row)));
    }
    learner.set<float>("x", x);
    learner.set<float>("y", y);
  }
  std::vector<float> values(const std::string& name) {
    const auto span = learner.parameter(name);
    return {span.begin(), span.end()};
  }
  Net net;
  SingleShapeLearner learner;
};

struct Moments {
  double mean = 0, variance = 0;  // the variance without bias
};
Moments moments(int64_t channel) {
  Moments m;
  for (int64_t row = 0; row < kRows; ++row) m.mean += element(row, channel) / kRows;
  for (int64_t row = 0; row < kRows; ++row) m.variance += std::pow(element(row, channel) - m.mean, 2) / (kRows - 1);
  return m;
}

// After `count` updates toward `value` from `start`.
double moved(double start, double value, int count) { return value + (start - value) * std::pow(0.9, count); }

void expect_statistics(Training& training, int updates) {
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const auto i = static_cast<size_t>(channel);
    EXPECT_NEAR(training.values("norm.running_mean")[i], moved(0, moments(channel).mean, updates), 1e-5);
    EXPECT_NEAR(training.values("norm.running_var")[i], moved(1, moments(channel).variance, updates), 1e-4);
  }
}

TEST(Buffers, RunningStatisticsMoveWithEachStepAndEvaluationUsesThem) {
  Training training({.optimizer = {.ema_decay = 0.9}});
  for (int step = 1; step <= 3; ++step) {
    training.learner.step(0.01);
    expect_statistics(training, step);
  }
  training.learner.evaluate();
  const auto normed = training.learner.trainer().plans().evaluate_executor(0).output("normed").as<float>();
  const auto mean = training.values("norm.running_mean"), variance = training.values("norm.running_var");
  // With the moving average of weight and bias, which evaluation takes, the statistics are still the running ones.
  const float* average = training.learner.trainer().state().flat("ema");
  const auto value_of = [&](const std::string& name, size_t i) {
    for (const ParameterSlot& slot : training.learner.trainer().state().layout().trained())
      if (slot.spec.name == name) return average[slot.offset + static_cast<int64_t>(i)];
    return NAN;
  };
  for (size_t i = 0; i < kChannels; ++i)
    EXPECT_NEAR(normed[i],
        (element(0, static_cast<int64_t>(i)) - mean[i]) / std::sqrt(variance[i] + 1e-5) * value_of("norm.weight", i) +
            value_of("norm.bias", i),
        1e-5);
}

TEST(Buffers, EachMicroBatchUpdates) {
  Training training({.accumulate_steps = 2});
  Trainer& trainer = training.learner.trainer();
  for (int64_t micro = 0; micro < 2; ++micro) trainer.accumulate(0, 1, micro);
  trainer.apply(0.01, 1);
  expect_statistics(training, 2);
}

TEST(Buffers, AreSavedWithTheModelAndResumedWithTheRun) {
  const testing::TemporaryFolder folder;
  const std::string state = folder / "state", model = folder / "model";
  const TrainerOptions options{.optimizer = {.ema_decay = 0.9}};
  Training first(options), whole(options);
  for (int step = 0; step < 4; ++step) whole.learner.step(0.01);
  for (int step = 0; step < 2; ++step) first.learner.step(0.01);
  const Trainer& trainer = first.learner.trainer();
  const TrainingState& trained = trainer.state();
  save_model(model, trained.layout(), trained.values(trained.evaluated()), {});
  save_training_state(state, trainer, {.step = 2}, {});

  Training resumed(options);
  load_training_state(state, resumed.learner.trainer());
  for (int64_t step = 3; step <= 4; ++step) resumed.learner.trainer().step(0, 0.01, step);
  for (const char* name : {"norm.running_mean", "norm.running_var", "norm.weight", "head.weight"})
    EXPECT_EQ(resumed.values(name), whole.values(name)) << name;

  Training loaded;
  load_model(model, loaded.learner.trainer().state().layout(), loaded.learner.trainer().state().flat("parameters"));
  EXPECT_EQ(loaded.values("norm.running_var"), first.values("norm.running_var"));
  EXPECT_DOUBLE_EQ(loaded.learner.evaluate(), first.learner.evaluate());
}

// Rounded to bf16 in each step, they would stop where a step moves them by less than half of bf16's distance.
TEST(Buffers, StayInFp32BesideActivationsInBf16) {
  Training training({.passes = {.precision = Precision::kBf16, .storage_type = DType::kBF16}});
  training.learner.step(0.01);
  expect_statistics(training, 1);
}

// The second batch is 2 x + 1, whose normalized rows are those of x.
LossFunction loss_of_two_batches(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    const Tensor y = trace.input("y", {DType::kF32, {kRows, 1}});
    const Tensor first = net.norm(x), second = net.norm(x * 2.0 + 1.0);
    return {sum_to(square(net.head(first + second) - y), {}), trace.number(kRows)};
  };
}

LossFunction loss_of_one_doubled(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    const Tensor y = trace.input("y", {DType::kF32, {kRows, 1}});
    return {sum_to(square(net.head(net.norm(x) * 2.0) - y), {}), trace.number(kRows)};
  };
}

TEST(Buffers, AModuleUsedTwiceUpdatesThemTwiceAndHasTheGradientOfBothUses) {
  const TrainerOptions options{.optimizer = {.kind = OptimizerAttrs::Kind::kSgd}};
  Training two(options, loss_of_two_batches), one(options, loss_of_one_doubled);
  two.learner.step(0.01);
  one.learner.step(0.01);
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const auto i = static_cast<size_t>(channel);
    const Moments m = moments(channel);
    EXPECT_NEAR(two.values("norm.running_mean")[i], moved(moved(0, m.mean, 1), 2 * m.mean + 1, 1), 1e-5);
    EXPECT_NEAR(two.values("norm.running_var")[i], moved(moved(1, m.variance, 1), 4 * m.variance, 1), 1e-4);
  }
  for (const char* name : {"norm.weight", "norm.bias", "head.weight", "head.bias"})
    for (size_t i = 0; i < one.values(name).size(); ++i)
      EXPECT_NEAR(two.values(name)[i], one.values(name)[i], 1e-4) << name;
}

struct Block : Module {
  Block(Module* up, std::string name) : Module(up, std::move(name)) {}
  Tensor operator()(Tensor x) {
    const ModuleScope scope(*this);
    return relu(norm(fc(x)));
  }
  Linear fc{this, "fc", kChannels, kChannels};
  BatchNorm norm{this, "norm", kChannels};
};

struct Tower : Module {
  Tensor operator()(Tensor x) {
    for (Block& block : layers) x = block(x);
    return x;
  }
  ModuleList<Block> layers{this, "layers", 2};
};

TEST(Buffers, ATowerUsedTwiceHasTheSameBitsWhereItsLayersAreRecomputed) {
  std::vector<std::vector<float>> parameters;
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kBlock}) {
    Tower tower;
    const LossFunction loss = [&](Trace& trace) -> Loss {
      const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
      const Tensor first = tower(x), second = tower(square(x));
      return {sum_to(square(first - second), {}), trace.number(kRows)};
    };
    SingleShapeLearner learner(tower, loss, {.recompute = mode});
    std::vector<float> x;
    for (int64_t i = 0; i < kRows * kChannels; ++i)
      x.push_back(static_cast<float>(element(i / kChannels, i % kChannels)));
    learner.set<float>("x", x);
    for (int step = 0; step < 3; ++step) learner.step(0.01);
    const TrainingState& state = learner.trainer().state();
    const float* values = state.flat(state::kParameters);
    parameters.emplace_back(values, values + state.layout().stored_count());
  }
  EXPECT_EQ(parameters[0], parameters[1]);
}

TEST(Buffers, ABatchOfOneIsAnError) {
  Net net;
  const LossFunction one = [&](Trace& trace) -> Loss {
    return {sum_to(square(net.norm(trace.input("x", {DType::kF32, {1, kChannels}}))), {}), trace.number(1)};
  };
  EXPECT_THROW(SingleShapeLearner(net, one), Error);
}
}  // namespace
}  // namespace linnet

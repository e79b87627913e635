// Training in fp16: operands of products are rounded to half precision, and the loss has a scale that follows
// overflows.
#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 16, kWidth = 12;
constexpr double kRate = 0.01;

struct Net : Module {
  Linear first{this, "first", kWidth, 20}, head{this, "head", 20, kWidth};
  Tensor operator()(Tensor x) { return head(relu(first(x))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const TensorType type{DType::kF32, {kRows, kWidth}};
    return {sum_to(square(net(trace.input("x", type)) - trace.input("y", type)), {}), trace.number(kRows)};
  };
}

struct Training {
  explicit Training(const LossScaleOptions& scale, TrainerOptions options = {}, Precision precision = Precision::kF16)
      : learner(net, loss_of(net), with(options, scale, precision)) {
    fill(1);
  }
  static TrainerOptions with(TrainerOptions options, const LossScaleOptions& scale, Precision precision) {
    options.passes.precision = precision, options.loss_scale = scale;
    options.optimizer.ema_decay = 0.9, options.optimizer.clip_norm = 10;
    return options;
  }
  void fill(float factor) {
    std::vector<float> x, y;
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      x.push_back(std::sin(static_cast<float>(i * i % 977)) * factor);
      y.push_back(std::cos(static_cast<float>(i * 7 % 331)));
    }
    learner.set<float>("x", x);
    learner.set<float>("y", y);
  }
  Trainer& trainer() { return learner.trainer(); }
  StepReport step(int64_t step) {
    if (!trainer().options().accumulates()) return trainer().step(0, kRate, step);
    for (int64_t micro = 0; micro < trainer().options().accumulate_steps; ++micro) trainer().accumulate(0, step, micro);
    return trainer().apply(kRate, step);
  }
  std::vector<std::vector<float>> states() {
    const TrainingState& trained = trainer().state();
    std::vector<std::vector<float>> all;
    for (const std::string& name : trained.names())
      all.emplace_back(trained.flat(name), trained.flat(name) + trained.layout().trained_count());
    return all;
  }
  Net net;
  SingleShapeLearner learner;
};

TEST(LossScale, HalvesAtAnOverflowAndDoublesAfterCleanSteps) {
  LossScale scale{.value = 8};
  scale.count(false, 3);
  EXPECT_EQ(scale, (LossScale{.value = 4, .clean_steps = 0, .skipped_steps = 1}));
  for (int i = 0; i < 2; ++i) scale.count(true, 3);
  EXPECT_EQ(scale, (LossScale{.value = 4, .clean_steps = 2, .skipped_steps = 1}));
  scale.count(true, 3);
  EXPECT_EQ(scale, (LossScale{.value = 8, .clean_steps = 0, .skipped_steps = 1}));
  scale.count(true, 3), scale.count(false, 3);
  EXPECT_EQ(scale, (LossScale{.value = 4, .clean_steps = 0, .skipped_steps = 2}));
  LossScale least{.value = 1}, most{.value = LossScale::kMost};
  EXPECT_FALSE(least.can_skip());
  most.count(true, 1);
  EXPECT_EQ(most.value, LossScale::kMost);
}

// The gradient of the loss times 2^24 is beyond 65504.
TEST(LossScale, SkippedStepsChangeNothingUntilTheScaleFitsAndThenItGrows) {
  for (const int64_t micros : {1, 2}) {
    SCOPED_TRACE(micros);
    Training training({.initial = LossScale::kMost, .growth_steps = 4}, {.accumulate_steps = micros});
    const auto before = training.states();
    double scale = LossScale::kMost;
    int64_t step = 1, skipped = 0;
    for (; step < 24; ++step) {
      const StepReport report = training.step(step);
      EXPECT_EQ(report.loss_scale, scale);
      EXPECT_TRUE(std::isfinite(report.loss));
      if (report.finite) break;
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(training.states(), before);
      scale /= 2, ++skipped;
    }
    EXPECT_GT(skipped, 2);
    EXPECT_LT(skipped, 16);
    EXPECT_NE(training.states(), before);
    EXPECT_EQ(training.trainer().loss_scale().skipped_steps, skipped);
    for (int clean = 1; clean < 4; ++clean) EXPECT_TRUE(training.step(++step).finite);
    EXPECT_EQ(training.trainer().loss_scale(), (LossScale{2 * scale, 0, skipped}));
  }
}

// Adam's first update is the first that is applied, whatever was skipped before it.
TEST(LossScale, SkippedStepsDoNotCountForAdam) {
  Training late({.initial = LossScale::kMost}), direct({.initial = 64});
  int64_t step = 1;
  while (!late.step(step).finite) ++step;
  direct.step(1);
  const auto a = late.states(), b = direct.states();
  ASSERT_GT(step, 3);
  for (size_t i = 0; i < a[0].size(); ++i) EXPECT_NEAR(a[0][i], b[0][i], 1e-3) << i;
}

TEST(LossScale, TrainsAsFp32Does) {
  Training half({.initial = 65536, .growth_steps = 10}), full({}, {}, Precision::kF32);
  double half_loss = 0, full_loss = 0;
  for (int64_t step = 1; step <= 120; ++step) half_loss = half.step(step).loss;
  const int64_t applied = 120 - half.trainer().loss_scale().skipped_steps;
  for (int64_t step = 1; step <= applied; ++step) full_loss = full.step(step).loss;
  EXPECT_GT(half.trainer().loss_scale().skipped_steps, 2);  // at least the first ones, and after each growth
  EXPECT_NEAR(half_loss, full_loss, 0.1 * full_loss);
}

TEST(LossScale, ACheckpointKeepsScaleAndCountersAndResumesWithTheSameBits) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "state";
  const LossScaleOptions scale{.initial = 1 << 20, .growth_steps = 3};
  Training one(scale);
  for (int64_t step = 1; step <= 11; ++step) one.step(step);
  save_training_state(path, one.trainer(), {.step = 11}, {});
  Training resumed(scale, {.seed = 9});
  load_training_state(path, resumed.trainer());
  EXPECT_EQ(resumed.trainer().loss_scale(), one.trainer().loss_scale());
  EXPECT_GT(resumed.trainer().loss_scale().skipped_steps, 0);
  for (int64_t step = 12; step <= 30; ++step) {
    const StepReport a = one.step(step), b = resumed.step(step);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.loss_scale, b.loss_scale);
    EXPECT_EQ(a.skipped, b.skipped);
  }
  EXPECT_EQ(one.states(), resumed.states());
}

// What overflows in the forward pass does so at every scale: the run is told of it, by name.
TEST(LossScale, AnOverflowAtTheLeastScaleIsNotSkipped) {
  Training training({.initial = 2});
  training.fill(1e6F);
  EXPECT_TRUE(training.step(1).skipped);
  const StepReport report = training.step(2);
  EXPECT_FALSE(report.finite);
  EXPECT_FALSE(report.skipped);
  EXPECT_NE(training.trainer().find_non_finite(0).find("round_half (in first)"), std::string::npos)
      << training.trainer().find_non_finite(0);
  EXPECT_EQ(training.trainer().loss_scale().skipped_steps, 1);
}
}  // namespace
}  // namespace linnet

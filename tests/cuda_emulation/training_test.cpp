// Whole training steps on a device: the emulated one, or with LINNET_TEST_DEVICE a GPU.
#include <gtest/gtest.h>
#include <cmath>
#include <deque>
#include "engine/kernels/gemm/gemm.h"
#include "op_harness.h"
#include "translation_fixture.h"

namespace linnet {
namespace {
using testing::make_batch;
using testing::small_config;
using testing::TokenBatch;
using testing::Training;

TransformerConfig config_with(float dropout, bool pre_norm) {
  TransformerConfig config = small_config();
  config.dropout = dropout;
  config.norm_first = config.final_norm = config.share_embeddings = config.tie_head = pre_norm;
  if (pre_norm) config.activation = Activation::kGelu;
  return config;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> parameters;
};

TrainerOptions on_device(bool reduced = false) {
  TrainerOptions options;
  if (const Backend* backend = testing::tested_backend()) options.backend = backend;
  if (reduced) options.passes.precision = Precision::kBf16, options.passes.storage_type = DType::kBF16;
  return options;
}

// Two shapes in turn: each has a recording of its own. The batch is overwritten as soon as a step returns.
Outcome train(const TransformerConfig& config, TrainerOptions options, int64_t steps = 6) {
  const TokenBatch a = make_batch({{7, 5}, {3, 8}, {1, 1}, {6, 6}}, 8, 8, 50);
  const TokenBatch b = make_batch({{12, 11}, {4, 2}}, 12, 12, 50, 9);
  options.optimizer.ema_decay = 0.9, options.optimizer.clip_norm = 1;
  Training training(config, {a.shape, b.shape}, options, 0.1);
  Outcome outcome;
  for (int64_t step = 1; step <= steps; ++step) {
    training.load(step % 2 ? a : b);
    const StepReport report = training.trainer->step(step % 2 ? 0 : 1, 1e-3, step);
    outcome.losses.push_back(report.loss), outcome.norms.push_back(report.grad_norm);
  }
  training.load(a);
  const LossTotal total = training.trainer->evaluate(0);
  outcome.losses.push_back(total.sum / static_cast<double>(total.tokens));
  training.trainer->state().pull();
  outcome.parameters = training.parameters();
  return outcome;
}

void expect_near(const Outcome& got, const Outcome& expected, double tolerance) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "step " << i + 1;
  for (size_t i = 0; i < got.norms.size(); ++i)
    EXPECT_NEAR(got.norms[i], expected.norms[i], 5 * tolerance * expected.norms[i]) << "step " << i + 1;
}

TEST(TrainingOnADevice, LossesAndNormsAreTheCpus) {
  for (const bool pre_norm : {false, true})
    for (const float dropout : {0.0f, 0.1f}) {
      const TransformerConfig config = config_with(dropout, pre_norm);
      expect_near(train(config, on_device()), train(config, {}), 2e-5);
    }
}

TEST(TrainingOnADevice, TwoRunsAreTheSameBits) {
  const TransformerConfig config = config_with(0.1f, true);
  const Outcome one = train(config, on_device());
  testing::disturb_backend(true);
  const Outcome two = train(config, on_device());
  testing::disturb_backend(false);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(one.parameters, two.parameters);
}

TEST(TrainingOnADevice, ActivationsInBf16ChangeLossesByLittle) {
  if (!testing::tested_backend()) GTEST_SKIP() << "on a device";
  for (const bool pre_norm : {false, true}) {
    TransformerConfig config = config_with(0.1f, pre_norm);
    config.attention_dropout = 0;  // cuDNN draws that mask in its own way
    expect_near(train(config, on_device(true)), train(config, {}), 1e-2);
  }
}

// What more rows take: the workspace of matrix products does not grow with them.
TEST(TrainingOnADevice, ActivationsInBf16TakeHalfTheMemory) {
  if (!testing::tested_backend() && !gemm_has_bf16()) GTEST_SKIP() << "this processor has no bf16";
  const auto bytes_of_rows = [](bool reduced) {
    double bytes[2];
    for (const size_t i : {0u, 1u}) {
      const TokenBatch batch =
          make_batch(std::vector<std::pair<int32_t, int32_t>>(i == 0 ? 16 : 64, {30, 30}), 32, 32, 50);
      const Training training(config_with(0.1f, true), {batch.shape}, on_device(reduced));
      bytes[i] = static_cast<double>(training.trainer->plans().arena_use().first);
    }
    return bytes[1] - bytes[0];
  };
  EXPECT_LT(bytes_of_rows(true), 0.62 * bytes_of_rows(false));
}

TEST(TrainingOnADevice, NothingIsAllocatedOnceEveryShapeHasRunTwice) {
  if (!testing::tested_backend()) GTEST_SKIP() << "on a device";
  const TokenBatch a = make_batch({{7, 5}, {3, 8}}, 8, 8, 50);
  Training training(config_with(0.1f, true), {a.shape}, on_device());
  training.load(a);
  for (int64_t step = 1; step <= 2; ++step) training.trainer->step(0, 1e-3, step);
  const int64_t before = testing::tested_backend()->device->allocations();
  for (int64_t step = 3; step <= 5; ++step) training.trainer->step(0, 1e-3, step);
  EXPECT_EQ(testing::tested_backend()->device->allocations(), before);
}

TEST(TrainingOnADevice, ReportsMayBeReadStepsLater) {
  const TokenBatch batches[2] = {make_batch({{7, 5}, {3, 8}}, 8, 8, 50), make_batch({{12, 9}}, 16, 16, 50)};
  const TransformerConfig config = config_with(0.1f, true);
  Training at_once(config, {batches[0].shape, batches[1].shape}, on_device());
  Training later(config, {batches[0].shape, batches[1].shape}, on_device());
  std::deque<SubmittedStep> submitted;
  std::vector<double> expected, got;
  for (int64_t step = 1; step <= 9; ++step) {
    const int shape = step % 3 == 0;
    at_once.load(batches[shape]);
    expected.push_back(at_once.trainer->step(shape, 1e-3, step).loss);
    later.load(batches[shape]);
    submitted.push_back(later.trainer->submit(shape, 1e-3, step));
    if (!later.store.device().is_host() && submitted.size() < 3) continue;
    got.push_back(later.trainer->collect(submitted.front()).loss);
    submitted.pop_front();
  }
  for (const SubmittedStep& step : submitted) got.push_back(later.trainer->collect(step).loss);
  EXPECT_EQ(got, expected);
}

TEST(TrainingOnADevice, AccumulatedMicroBatchesAreOneLargeBatch) {
  std::vector<std::pair<int32_t, int32_t>> all{{2, 8}, {5, 1}, {3, 6}, {5, 2}};
  const TokenBatch whole = make_batch(all, 8, 8, 50);
  const TokenBatch micro[2] = {make_batch({all[0], all[1]}, 8, 8, 50), make_batch({all[2], all[3]}, 8, 8, 50, 2)};
  Training one(small_config(), {whole.shape}, on_device());
  TrainerOptions options = on_device();
  options.accumulate_steps = 2;
  Training two(small_config(), {micro[0].shape}, options);
  for (int64_t step = 1; step <= 3; ++step) {
    one.load(whole);
    const StepReport expected = one.trainer->step(0, 1e-3, step);
    for (int64_t part = 0; part < 2; ++part) {
      two.load(micro[part]);
      two.trainer->accumulate(0, step, part);
    }
    const StepReport got = two.trainer->apply(1e-3, step);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_NEAR(got.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
  }
}

TEST(TrainingOnADevice, AStepThatIsNotFiniteIsFoundAndChangesNothing) {
  const TokenBatch a = make_batch({{7, 5}, {3, 8}}, 8, 8, 50);
  Training training(config_with(0, true), {a.shape}, on_device());
  training.load(a);
  training.trainer->step(0, 1e-3, 1);
  training.trainer->state().pull();
  training.trainer->state().flat("parameters")[5] = std::numeric_limits<float>::infinity();
  training.trainer->state().push();
  const std::vector<float> before = training.parameters();
  EXPECT_FALSE(training.trainer->step(0, 1e-3, 2).finite);
  training.trainer->state().pull();
  EXPECT_EQ(training.parameters(), before);
  EXPECT_NE(training.trainer->find_non_finite(0), "");
}
}  // namespace
}  // namespace linnet

// On the CPU, on the emulated device (tests/cuda_emulation), or with LINNET_TEST_DEVICE on a GPU: resident steps are
// those of the same slot's Trainer::step, bit for bit.
#include "training/trainer/resident.h"
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "base/error.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "models/modules/image_model.h"
#include "op_harness.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kSize = 8, kClasses = 3, kBatch = 6, kCount = 20;  // 4 batches an epoch, the last of 2 rows

struct Net : Module {
  ConvPool conv{this, "conv", 1, 16};
  Dropout dropout{this, "dropout", 0.3f};
  Linear head{this, "head", kSize / 2 * (kSize / 2) * 16, kClasses};
};

Loss net_loss(Net& net, Trace& trace) {
  const Tensor images = trace.input("images", {DType::kU8, {kBatch, kSize, kSize, 1}});
  const Tensor labels = trace.input("labels", {DType::kI32, {kBatch}});
  const Tensor pooled = net.conv(images, pixel_scaling(1));
  const Tensor logits = net.head(net.dropout(reshape(pooled, {kBatch, net.head.weight.spec().shape[1]})));
  return {cross_entropy_sum(logits, labels), count_targets(labels, DType::kF32)};
}

struct Outcome {
  std::vector<StepReport> reports;
  std::vector<float> parameters, moments;
};

class ResidentTraining : public ::testing::Test {
 protected:
  ResidentTraining() {
    for (int64_t i = 0; i < kCount * kSize * kSize; ++i) images_.push_back(static_cast<uint8_t>(i * i % 251));
    for (int64_t i = 0; i < kCount; ++i) labels_.push_back(static_cast<int32_t>(i * 7 % kClasses));
    if (const Backend* backend = testing::tested_backend()) options_.backend = backend;
    options_.optimizer.clip_norm = 1;
    options_.optimizer.ema_decay = 0.9;
    options_.seed = (uint64_t{5} << 32) + 3;
  }

  // Batch after batch through the epochs, each in an order of its own; rows without labels beyond the end of an epoch.
  static std::vector<int32_t> order(int64_t steps) {
    constexpr int64_t kBatches = (kCount + kBatch - 1) / kBatch;
    std::vector<int32_t> order;
    for (int64_t step = 0; step < steps; ++step)
      for (int64_t r = 0; r < kBatch; ++r) {
        const int64_t slot = step % kBatches * kBatch + r, epoch = step / kBatches;
        const auto row = static_cast<int32_t>((slot * 3 + epoch) % kCount);
        order.push_back(slot < kCount ? row : ~row);
      }
    return order;
  }
  static float rate(int64_t step) { return 1e-3f * static_cast<float>(step % 5 + 1); }

  Outcome outcome(SingleShapeLearner& learner, std::vector<StepReport> reports) {
    const TrainingState& trained = learner.trainer().state();
    trained.pull();
    const auto values = [&](const char* state) {
      return std::vector<float>(trained.flat(state), trained.flat(state) + trained.layout().parameter_count());
    };
    return {std::move(reports), values("parameters"), values("moment2")};
  }

  Outcome one_by_one(int64_t steps) {
    SingleShapeLearner learner(net_, loss_, options_);
    const std::vector<int32_t> rows = order(steps);
    std::vector<StepReport> reports;
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<uint8_t> images(kBatch * kSize * kSize);
      std::vector<int32_t> labels(kBatch, -1);
      for (int64_t r = 0; r < kBatch; ++r) {
        const int32_t ordered = rows[static_cast<size_t>(step * kBatch + r)], row = ordered < 0 ? ~ordered : ordered;
        std::copy_n(images_.data() + row * kSize * kSize, kSize * kSize, images.data() + r * kSize * kSize);
        if (ordered >= 0) labels[static_cast<size_t>(r)] = labels_[static_cast<size_t>(row)];
      }
      learner.set("images", std::span<const uint8_t>(images));
      learner.set("labels", std::span<const int32_t>(labels));
      reports.push_back(learner.step(static_cast<double>(rate(step + 1))));
    }
    return outcome(learner, std::move(reports));
  }

  std::unique_ptr<SingleShapeLearner> resident_learner(int64_t per_chunk, int64_t per_graph) {
    const ResidentOptions resident{
        .data = {{"images", {DType::kU8, {kCount, kSize, kSize, 1}}}, {"labels", {DType::kI32, {kCount}}}},
        .steps_per_chunk = per_chunk,
        .steps_per_graph = per_graph};
    auto learner = std::make_unique<SingleShapeLearner>(net_, loss_, options_, resident);
    learner->resident().stage("images", std::as_bytes(std::span(images_)));
    learner->resident().stage("labels", std::as_bytes(std::span(labels_)));
    return learner;
  }

  static void begin(ResidentSteps& steps, int64_t first, int64_t count) {
    const std::vector<int32_t> rows = order(first - 1 + count);
    std::vector<float> rates;
    for (int64_t step = first; step < first + count; ++step) rates.push_back(rate(step));
    steps.begin_chunk(std::span(rows).subspan(static_cast<size_t>((first - 1) * kBatch)), rates, first);
  }

  static std::vector<StepReport> run_chunks(ResidentSteps& steps, const std::vector<int64_t>& chunks) {
    std::vector<StepReport> reports;
    int64_t first = 1;
    for (const int64_t count : chunks) {
      begin(steps, first, count);
      steps.run(count / 2);
      steps.run(count - count / 2);
      const std::vector<StepReport> part = steps.reports();
      EXPECT_EQ(static_cast<int64_t>(part.size()), count);
      reports.insert(reports.end(), part.begin(), part.end());
      first += count;
    }
    return reports;
  }

  static void expect_same(const Outcome& got, const Outcome& expected) {
    ASSERT_EQ(got.reports.size(), expected.reports.size());
    for (size_t i = 0; i < got.reports.size(); ++i) {
      EXPECT_EQ(got.reports[i].loss, expected.reports[i].loss) << "step " << i + 1;
      EXPECT_EQ(got.reports[i].grad_norm, expected.reports[i].grad_norm) << "step " << i + 1;
      EXPECT_EQ(got.reports[i].tokens, expected.reports[i].tokens) << "step " << i + 1;
    }
    EXPECT_EQ(got.parameters, expected.parameters);
    EXPECT_EQ(got.moments, expected.moments);
  }

  Net net_;
  LossFunction loss_ = [this](Trace& trace) { return net_loss(net_, trace); };
  std::vector<uint8_t> images_;
  std::vector<int32_t> labels_;
  TrainerOptions options_;
};

TEST_F(ResidentTraining, ChunksOfStepsAreTheStepsOneByOne) {
  const Outcome expected = one_by_one(31);
  EXPECT_EQ(expected.reports[3].tokens, 2);
  for (const int64_t per_graph : {1, 4}) {
    const auto learner = resident_learner(13, per_graph);
    expect_same(outcome(*learner, run_chunks(learner->resident(), {13, 9, 1, 8})), expected);
  }
}

TEST_F(ResidentTraining, NothingIsAllocatedOnceEachRecordingIsMade) {
  if (options_.backend->device->is_host()) GTEST_SKIP() << "on a device";
  const auto learner = resident_learner(16, 4);
  run_chunks(learner->resident(), {15});
  const int64_t before = options_.backend->device->allocations();
  run_chunks(learner->resident(), {15, 16, 3});
  EXPECT_EQ(options_.backend->device->allocations(), before);
}

TEST_F(ResidentTraining, StepsThatAreNotFiniteAreReportedAndChangeNothing) {
  const auto learner = resident_learner(8, 4);
  ResidentSteps& steps = learner->resident();
  begin(steps, 1, 5);
  steps.run(5);
  EXPECT_TRUE(steps.reports().back().finite);
  Trainer& trainer = learner->trainer();
  trainer.state().pull();
  trainer.state().flat("parameters")[7] = std::numeric_limits<float>::infinity();
  trainer.state().push();
  const Outcome before = outcome(*learner, {});
  begin(steps, 6, 6);
  steps.run(6);
  for (const StepReport& report : steps.reports()) EXPECT_FALSE(report.finite);
  const Outcome after = outcome(*learner, {});
  EXPECT_EQ(after.parameters, before.parameters);
  EXPECT_EQ(after.moments, before.moments);
}

TEST_F(ResidentTraining, DataThatDoNotFitTheLossAreRefused) {
  const auto with = [&](const std::string& name, TensorType type) {
    SingleShapeLearner learner(net_, loss_, options_, {.data = {{name, type}}});
  };
  EXPECT_THROW(with("pictures", {DType::kU8, {kCount, kSize, kSize, 1}}), Error);
  EXPECT_THROW(with("images", {DType::kU8, {kCount, kSize, kSize}}), Error);
  EXPECT_THROW(with("images", {DType::kI32, {kCount, kSize, kSize, 1}}), Error);
}
}  // namespace
}  // namespace linnet

// Models whose layers the stages of a pipeline share, with threads as ranks: they train as one rank does, with the same
// dropout masks, and checkpoints do not tell how many stages wrote them.
#include "train/pipeline_stage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/timeline.h"
#include "comm/comm_testing.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"
#include "train/families_testing.h"
#include "train/sharded_step.h"

namespace linnet {
namespace {

using testing::Family;

constexpr int kSteps = 20;
constexpr int64_t kMicroBatches = 3;

struct Setting {
  std::string family;
  int stages = 1;
  int64_t micro_batches = kMicroBatches;
  RecomputeMode recompute = RecomputeMode::kAuto;
};

TrainerOptions options_of(const Setting& setting, int stage) {
  return {.optimizer = {.kind = OptimizerAttrs::Kind::kAdam, .weight_decay = 0.01, .clip_norm = 0.5, .ema_decay = 0.9},
          .accumulate_steps = setting.micro_batches,
          .pipeline = {stage, setting.stages},
          .recompute = setting.recompute};
}

// One stage of a family's training.
struct Rank {
  Rank(const std::string& name, Communicator& pipeline, const TrainerOptions& options)
      : scope(pipeline),
        family(testing::make_family(name)),
        learner(
            family->model(), [this](Trace& trace) { return family->loss(trace); }, options) {}
  Rank(const Setting& setting, Communicator& world) : Rank(setting.family, world, options_of(setting, world.rank())) {}

  // The first micro-batches are those of the step before, which it learns.
  StepReport step(int64_t step) {
    Trainer& trainer = learner.trainer();
    for (int64_t micro = 0; micro < trainer.options().accumulate_steps; ++micro) {
      family->fill(learner, step % 2 + 10 * micro);
      if (trainer.accumulates())
        trainer.accumulate(0, step, micro);
      else
        return trainer.step(0, 1e-3, step);
    }
    return trainer.apply(1e-3, step);
  }
  double evaluate() {
    family->fill(learner, 1000);
    return learner.evaluate();
  }

  PipelineScope scope;
  std::unique_ptr<Family> family;
  SingleShapeLearner learner;
};

struct Result {
  std::vector<double> losses, norms;
  std::vector<uint64_t> bytes;   // by stage
  std::vector<int64_t> trained;  // by stage
};

Result train(const Setting& setting, int steps = kSteps) {
  const auto stages = static_cast<size_t>(setting.stages);
  std::vector<Result> results(stages);
  std::vector<uint64_t> bytes(stages);
  std::vector<int64_t> trained(stages);
  testing::run_ranks(setting.stages, [&](Communicator& world) {
    Rank rank(setting, world);
    const auto index = static_cast<size_t>(world.rank());
    Result& result = results[index];
    for (int64_t step = 1; step <= steps; ++step) {
      const StepReport report = rank.step(step);
      result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
      result.losses.push_back(static_cast<double>(report.tokens));
    }
    result.losses.push_back(rank.evaluate());
    bytes[index] = rank.learner.memory_bytes();
    trained[index] = rank.learner.trainer().layout().trained_count();
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.losses, results[0].losses);
    EXPECT_EQ(result.norms, results[0].norms);
  }
  results[0].bytes = bytes, results[0].trained = trained;
  return results[0];
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "value " << i;
}

class PipelineTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(PipelineTraining, TrainsAsOneRankDoes) {
  const Result alone = train({GetParam()});
  EXPECT_LT(alone.losses[2 * kSteps - 4], alone.losses[0]);
  for (const int stages : {2, 3, 4}) {
    SCOPED_TRACE(stages);
    const Result together = train({GetParam(), stages});
    expect_close(together.losses, alone.losses, 1e-5);
    expect_close(together.norms, alone.norms, 1e-3);
    for (const int64_t trained : together.trained) EXPECT_LT(trained, alone.trained[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineTraining, ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
                         [](const auto& param) { return std::string(param.param); });

// One micro-batch, fewer than there are stages, and more: slots are used again.
TEST(Pipeline, TakesAnyNumberOfMicroBatches) {
  for (const int64_t count : {1, 2, 7}) {
    SCOPED_TRACE(count);
    const Result alone = train({"gpt", 1, count}, 4);
    for (const int stages : {2, 4}) {
      const Result together = train({"gpt", stages, count}, 4);
      expect_close(together.losses, alone.losses, 1e-5);
      expect_close(together.norms, alone.norms, 1e-3);
    }
  }
}

TEST(Pipeline, RecomputationDoesNotChangeABit) {
  const Result kept = train({"gpt", 2}, 5);
  const Result again = train({"gpt", 2, kMicroBatches, RecomputeMode::kBlock}, 5);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
  EXPECT_LT(again.bytes[0], kept.bytes[0]);  // what the first stage saves
}

// Copies of a tied embedding are updated alike, and the norm counts it once (TrainsAsOneRankDoes).
TEST(Pipeline, TiedParametersStayEqual) {
  std::vector<std::vector<float>> copies(2);
  testing::run_ranks(2, [&](Communicator& world) {
    Rank rank({"gpt", 2}, world);
    for (int64_t step = 1; step <= 5; ++step) rank.step(step);
    const ParameterLayout& layout = rank.learner.trainer().layout();
    for (const TrainedRange& range : layout.ranges()) {
      for (const ParameterSlot& slot : layout.trained()) {
        if (slot.offset != range.offset || stages_of(layout)->of.at(slot.spec.name).size() == 1) continue;
        EXPECT_EQ(is_copy(layout, range), world.rank() == 1);
        const std::span<float> values = rank.learner.parameter(slot.spec.name);
        copies[static_cast<size_t>(world.rank())].assign(values.begin(), values.end());
      }
    }
  });
  EXPECT_FALSE(copies[0].empty());
  EXPECT_EQ(copies[0], copies[1]);
}

// What the last stage has found besides the loss is on every stage.
TEST(Pipeline, EveryStageHasTheEvaluation) {
  const auto predictions = [](int stages) {
    std::vector<std::vector<int32_t>> found(static_cast<size_t>(stages));
    testing::run_ranks(stages, [&](Communicator& world) {
      Rank rank({"bert", stages}, world);
      rank.evaluate();
      const TensorView& view = rank.learner.trainer().evaluation_output(0, "predictions");
      found[static_cast<size_t>(world.rank())].assign(view.as<int32_t>(), view.as<int32_t>() + view.elements());
    });
    return found;
  };
  const std::vector<int32_t> alone = predictions(1)[0];
  EXPECT_FALSE(alone.empty());
  for (const std::vector<int32_t>& each : predictions(3)) EXPECT_EQ(each, alone);
}

// What is saved for the backward pass is computed where it is saved: only sums of losses and tokens are copied.
TEST(Pipeline, ActivationsAreNotCopiedToBeSaved) {
  for (const char* family : {"gpt", "llama", "bert", "transformer", "t5"})
    testing::run_ranks(3, [&](Communicator& world) {
      Rank rank({family, 3}, world);
      for (const auto& [name, plan] : rank.learner.trainer().plans())
        for (const StateUpdate& copy : plan->copies)
          EXPECT_EQ(plan->graph.value(copy.value).type.shape.elements(), 1) << family << " " << name;
    });
}

// What each stage has done, in order: "F0 F1 B0 ...". The last stage does both passes at once.
TEST(Pipeline, ForwardAndBackwardPassesAlternate) {
  constexpr int kStages = 3;
  std::vector<std::string> order(kStages);
  testing::run_ranks(kStages, [&](Communicator& world) {
    Timeline::name_thread("stage " + std::to_string(world.rank()));
    Rank rank({"gpt", kStages, 4}, world);
    barrier(world);
    if (world.rank() == 0) Timeline::start();
    barrier(world);
    rank.step(1);
    barrier(world);
  });
  Timeline::stop();
  for (const Track& track : Timeline::take()) {
    if (!track.thread.starts_with("stage ")) continue;
    std::string& text = order[static_cast<size_t>(track.thread.back() - '0')];
    for (const Span& span : track.spans) {
      const std::string_view name = span.name ? span.name : "";
      const std::string number = std::to_string(span.index) + " ";
      if (name == "forward") text += "F" + number;
      if (name == "backward") text += "B" + number;
      if (name == "forward and backward") text += "FB" + number;
    }
  }
  EXPECT_EQ(order[0], "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(order[1], "F0 F1 B0 F2 B1 F3 B2 B3 ");
  EXPECT_EQ(order[2], "FB0 FB1 FB2 FB3 ");
}

// `stages` train the steps (first, last], from a checkpoint unless first is 0, and save one; their losses.
std::vector<double> train_part(int stages, int64_t first, int64_t last, const testing::TemporaryFolder& folder) {
  std::vector<double> losses;
  testing::run_ranks(stages, [&](Communicator& world) {
    Rank rank({"gpt", stages}, world);
    Trainer& trainer = rank.learner.trainer();
    RankGroup alone(world, {world.rank()});
    WholeStates whole(trainer, alone, alone, world);
    const bool is_first = world.rank() == 0;
    if (first > 0) {
      if (is_first) {
        EXPECT_EQ(load_training_state(folder / "state", trainer).step, first);
      }
      load_divided_states(folder / "state", trainer, whole);
    }
    for (int64_t step = first + 1; step <= last; ++step) {
      const double loss = rank.step(step).loss;
      if (is_first) losses.push_back(loss);
    }
    if (is_first)
      save_training_state(folder / "state", trainer, {.step = last}, {}, &whole);
    else
      give_training_state(trainer, whole);
    save_divided_model(folder / "model", trainer, "parameters", {}, whole);
  });
  return losses;
}

TEST(Pipeline, CheckpointsDoNotTellHowManyStagesWroteThem) {
  const Result alone = train({"gpt"}, 12);
  for (const std::vector<int>& stages : {std::vector{2, 1, 4}, {1, 3, 1}}) {
    testing::TemporaryFolder folder;
    std::vector<double> losses;
    int64_t step = 0;
    for (const int each : stages) {
      for (const double loss : train_part(each, step, step + 4, folder)) losses.push_back(loss);
      step += 4;
    }
    ASSERT_EQ(losses.size(), 12U);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], alone.losses[2 * i], 1e-5 * losses[i]) << i;
    // The weights are those of the state, whole, in the order of one rank's.
    testing::run_ranks(1, [&](Communicator& world) {
      Rank one({"gpt"}, world);
      const ParameterLayout& layout = one.learner.trainer().layout();
      std::vector<float> weights(static_cast<size_t>(layout.parameter_count()));
      load_model(folder / "model", layout, weights.data());
      load_training_state(folder / "state", one.learner.trainer());
      EXPECT_TRUE(std::equal(weights.begin(), weights.end(), one.learner.trainer().state("parameters")));
    });
  }
}

// Four ranks: two models of two stages each, which train on different shards.
TEST(Pipeline, PipelinesTrainOnDifferentData) {
  constexpr int64_t kShards = 2;
  const auto train_shards = [&](int ranks, int stages, bool divided) {
    std::vector<std::vector<double>> found(static_cast<size_t>(ranks));
    testing::run_ranks(ranks, [&](Communicator& world) {
      RankGroups groups(world, 1, stages);
      TrainerOptions options = options_of({"gpt", stages, 2}, groups.pipeline.rank());
      options.shards = {kShards, groups.data.rank(), groups.data.size()};
      options.divide_moments = divided;
      Rank rank("gpt", groups.pipeline, options);
      Trainer& trainer = rank.learner.trainer();
      ShardedStep shards(trainer, groups.data);
      std::vector<double>& own = found[static_cast<size_t>(world.rank())];
      for (int64_t step = 1; step <= 5; ++step) {
        shards.begin();
        for (int64_t i = 0; i < options.shards.count(); ++i) {
          for (int64_t micro = 0; micro < 2; ++micro) {
            rank.family->fill(rank.learner, 10 * step + 2 * (options.shards.first() + i) + micro);
            shards.accumulate(0, step, micro);
          }
          shards.add();
        }
        shards.finish();
        const StepReport report = trainer.apply(1e-3, step);
        shards.share_update();
        own.push_back(report.loss), own.push_back(report.grad_norm);
      }
      shards.share_average();
      own.push_back(rank.evaluate());
    });
    for (const std::vector<double>& each : found) EXPECT_EQ(each, found[0]);
    return found[0];
  };
  const std::vector<double> alone = train_shards(1, 1, false);
  const std::vector<double> both = train_shards(4, 2, false);
  expect_close(both, alone, 1e-5);
  EXPECT_EQ(train_shards(4, 2, true), both);
  EXPECT_EQ(train_shards(2, 2, false), both);
}

TEST(Pipeline, StagesTakeLessMemory) {
  const Result alone = train({"gpt", 1, 4}, 1), together = train({"gpt", 2, 4}, 1);
  EXPECT_LT(together.trained[0] + together.trained[1], alone.trained[0] * 18 / 10);  // the tied embedding is on both
  for (const uint64_t bytes : together.bytes) EXPECT_LE(bytes, alone.bytes[0]);
}

}  // namespace
}  // namespace linnet

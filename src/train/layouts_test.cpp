// Tensor, pipeline and data parallel together, with threads as ranks: each family trains as one rank does, with the
// same dropout masks, and checkpoints do not tell how ranks shared the model.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "comm/comm_testing.h"
#include "comm/pipeline_group.h"
#include "comm/tensor_group.h"
#include "nn/stage_text.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"
#include "train/families_testing.h"
#include "train/sharded_step.h"

namespace linnet {
namespace {

using testing::Family;

constexpr int kSteps = 20;
constexpr int64_t kMicroBatches = 2;

struct Layout {
  int data = 1, tensor = 1;
  PipelineRank pipeline = {};
  bool divides_moments = false;
  int64_t shards = 1, micro_batches = kMicroBatches;
  RecomputeMode recompute = RecomputeMode::kAuto;
  int ranks() const { return data * tensor * pipeline.ranks; }
};

// A rank of a layout.
struct Rank {
  Rank(const std::string& name, const Layout& layout, Communicator& world)
      : groups(world, layout.tensor, layout.pipeline.ranks),
        tensor_scope(groups.tensor),
        pipeline_scope(groups.pipeline),
        family(testing::make_family(name)),
        learner(
            family->model(), [this](Trace& trace) { return family->loss(trace); }, options_of(layout)) {
    if (layout.shards > 1) sharded.emplace(trainer(), groups.data, layout.tensor > 1 ? &groups.tensor : nullptr);
  }

  TrainerOptions options_of(const Layout& layout) const {
    TrainerOptions options{
        .optimizer = {.kind = OptimizerAttrs::Kind::kAdam, .weight_decay = 0.01, .clip_norm = 0.5, .ema_decay = 0.9},
        .accumulate_steps = layout.micro_batches,
        .shards = {layout.shards, groups.data.rank(), layout.data},
        .tensor = {groups.tensor.rank(), layout.tensor},
        .pipeline = layout.pipeline,
        .divide_moments = layout.divides_moments,
        .recompute = layout.recompute};
    options.pipeline.rank = groups.pipeline.rank();
    return options;
  }
  Trainer& trainer() { return learner.trainer(); }

  StepReport step(int64_t step) {
    const int64_t micros = trainer().options().accumulate_steps;
    if (!sharded) {
      for (int64_t micro = 0; micro < micros; ++micro) {
        family->fill(learner, step % 2 + 10 * micro);
        if (!trainer().accumulates()) return trainer().step(0, 1e-3, step);
        trainer().accumulate(0, step, micro);
      }
      return trainer().apply(1e-3, step);
    }
    const ShardShare& share = trainer().options().shards;
    sharded->begin();
    for (int64_t shard = 0; shard < share.count(); ++shard) {
      for (int64_t micro = 0; micro < micros; ++micro) {
        family->fill(learner, step % 2 + 10 * (micros * (share.first() + shard) + micro));
        sharded->accumulate(0, step, micro);
      }
      sharded->add();
    }
    sharded->finish();
    const StepReport report = trainer().apply(1e-3, step);
    sharded->share_update();
    return report;
  }
  double evaluate() {
    if (sharded) sharded->share_average();
    family->fill(learner, 1000);
    return learner.evaluate();
  }

  RankGroups groups;
  TensorGroupScope tensor_scope;
  PipelineScope pipeline_scope;
  std::unique_ptr<Family> family;
  SingleShapeLearner learner;
  std::optional<ShardedStep> sharded;
};

struct Result {
  std::vector<double> losses, norms;
  std::vector<uint64_t> bytes;   // by rank
  std::vector<int64_t> trained;  // by rank
  std::vector<std::string> stages;
};

Result train(const std::string& family, const Layout& layout, int steps = kSteps) {
  std::vector<Result> results(static_cast<size_t>(layout.ranks()));
  testing::run_ranks(layout.ranks(), [&](Communicator& world) {
    Rank rank(family, layout, world);
    Result& result = results[static_cast<size_t>(world.rank())];
    for (int64_t step = 1; step <= steps; ++step) {
      const StepReport report = rank.step(step);
      result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
    }
    result.losses.push_back(rank.evaluate());
    result.bytes = {rank.learner.memory_bytes()};
    result.trained = {rank.trainer().layout().trained_count()};
    result.stages = {stage_text(rank.trainer().layout())};
  });
  Result& first = results[0];
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i].losses, first.losses);
    EXPECT_EQ(results[i].norms, first.norms);
    first.bytes.push_back(results[i].bytes[0]), first.trained.push_back(results[i].trained[0]);
    first.stages.push_back(results[i].stages[0]);
  }
  return first;
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "value " << i;
}

class CombinedLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(CombinedLayouts, TrainAsOneRankDoes) {
  const Result alone = train(GetParam(), {});
  EXPECT_LT(alone.losses[kSteps - 1], alone.losses[1]);
  for (const Layout& layout :
       {Layout{.tensor = 2, .pipeline = {.ranks = 2}}, Layout{.tensor = 2, .pipeline = {.ranks = 3}}}) {
    SCOPED_TRACE(layout.pipeline.ranks);
    const Result together = train(GetParam(), layout);
    expect_close(together.losses, alone.losses, 1e-5);
    expect_close(together.norms, alone.norms, 1e-3);
    for (size_t i = 0; i < together.trained.size(); ++i) {
      EXPECT_LT(together.trained[i], alone.trained[0] * 6 / 10) << "rank " << i;
      EXPECT_LT(together.bytes[i], alone.bytes[0]) << "rank " << i;
    }
  }
}

// Eight ranks: two models of four ranks each, which train on different shards; moments whole and divided.
TEST_P(CombinedLayouts, TrainOnDifferentData) {
  const Result alone = train(GetParam(), {.shards = 2});
  const Result eight = train(GetParam(), {.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .shards = 2});
  expect_close(eight.losses, alone.losses, 1e-5);
  expect_close(eight.norms, alone.norms, 1e-3);
  const Layout divided{.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .divides_moments = true, .shards = 2};
  EXPECT_EQ(train(GetParam(), divided).losses, eight.losses);
  const Layout four{.tensor = 2, .pipeline = {.ranks = 2}, .shards = 2};
  EXPECT_EQ(train(GetParam(), four).losses, eight.losses);
}

// Each rank has two stages; a step is one group of micro-batches or two.
TEST_P(CombinedLayouts, TrainInterleavedStages) {
  const PipelineRank interleaved{.ranks = 2, .chunks = 2};
  for (const int64_t micro_batches : {2, 4}) {
    SCOPED_TRACE(micro_batches);
    const Result alone = train(GetParam(), {.micro_batches = micro_batches});
    const Result together = train(GetParam(), {.pipeline = interleaved, .micro_batches = micro_batches});
    expect_close(together.losses, alone.losses, 1e-5);
    expect_close(together.norms, alone.norms, 1e-3);
    for (const int64_t trained : together.trained) EXPECT_LT(trained, alone.trained[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CombinedLayouts, ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Layouts, InterleavedStagesAreCombinedWithTheOthers) {
  const Result alone = train("transformer", {.shards = 2});
  Layout layout{.data = 2, .tensor = 2, .pipeline = {.ranks = 2, .chunks = 3}, .divides_moments = true, .shards = 2};
  const Result together = train("transformer", layout);
  expect_close(together.losses, alone.losses, 1e-5);
  expect_close(together.norms, alone.norms, 1e-3);
  layout.recompute = RecomputeMode::kBlock;
  EXPECT_EQ(train("transformer", layout).losses, together.losses);
}

TEST(Layouts, InterleavedStagesTakeGroupsOfMicroBatches) {
  testing::run_ranks(2, [](Communicator& world) {
    try {
      Rank("gpt", {.pipeline = {.ranks = 2, .chunks = 2}, .micro_batches = 3}, world);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "interleaved stages take micro-batches in groups of one for each rank: set accumulate_steps to a "
                "multiple of 2, not 3");
    }
  });
}

// Norms and embeddings go with their stack, whatever would be balanced.
TEST(Layouts, EncoderAndDecoderOnARankEach) {
  for (const char* family : {"transformer", "t5"}) {
    SCOPED_TRACE(family);
    const Result alone = train(family, {});
    for (const int tensor : {1, 2}) {
      const Layout layout{.tensor = tensor, .pipeline = {.ranks = 2, .splits_encoder = true}};
      const Result together = train(family, layout);
      expect_close(together.losses, alone.losses, 1e-5);
      expect_close(together.norms, alone.norms, 1e-3);
      EXPECT_TRUE(together.stages[0].starts_with("stage 0: encoder.layers.0 to encoder.layers.1, "))
          << together.stages[0];
      EXPECT_TRUE(together.stages.back().starts_with("stage 1: decoder.layers.0 to decoder.layers.1, "))
          << together.stages.back();
    }
  }
}

TEST(Layouts, RecomputationDoesNotChangeABit) {
  Layout layout{.tensor = 2, .pipeline = {.ranks = 2}};
  const Result kept = train("transformer", layout, 5);
  layout.recompute = RecomputeMode::kBlock;
  const Result again = train("transformer", layout, 5);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
}

// Trains the steps (first, last], from a checkpoint unless first is 0, and saves one; the losses.
std::vector<double> train_part(const Layout& layout, int64_t first, int64_t last,
                               const testing::TemporaryFolder& folder) {
  std::vector<double> losses;
  testing::run_ranks(layout.ranks(), [&](Communicator& world) {
    Rank rank("transformer", layout, world);
    Trainer& trainer = rank.trainer();
    WholeStates whole(trainer, rank.groups.data, rank.groups.tensor, rank.groups.pipeline);
    const bool is_first = world.rank() == 0;
    if (first > 0) {
      if (is_first) {
        EXPECT_EQ(load_training_state(folder / "state", trainer).step, first);
      }
      if (!trainer.layout().division())  // what ranks do not divide, as the run shares it (run/rank_setup.h)
        for (const std::string& state : trainer.states())
          if (!trainer.is_divided(state))
            broadcast(rank.groups.data, 0,
                      std::span(trainer.state(state), static_cast<size_t>(trainer.layout().trained_count())));
      load_divided_states(folder / "state", trainer, whole);
    }
    for (int64_t step = first + 1; step <= last; ++step) {
      const double loss = rank.step(step).loss;
      if (is_first) losses.push_back(loss);
    }
    if (rank.sharded) rank.sharded->share_average();
    if (is_first)
      save_training_state(folder / "state", trainer, {.step = last}, {}, &whole);
    else
      give_training_state(trainer, whole);
    save_divided_model(folder / "model", trainer, "parameters", {}, whole);
  });
  return losses;
}

TEST(Layouts, CheckpointsDoNotTellWhichOneWroteThem) {
  const Layout one{.shards = 2}, four{.tensor = 2, .pipeline = {.ranks = 2}, .shards = 2};
  const Layout data{.data = 2, .divides_moments = true, .shards = 2};
  const Layout eight{.data = 2, .tensor = 2, .pipeline = {.ranks = 2}, .divides_moments = true, .shards = 2};
  const Layout interleaved{.tensor = 2, .pipeline = {.ranks = 2, .chunks = 2}, .shards = 2};
  const Result alone = train("transformer", one, 12);
  for (const std::vector<Layout>& layouts :
       {std::vector{four, one, data}, {data, eight, four}, {eight, interleaved, one}, {interleaved, data, four}}) {
    testing::TemporaryFolder folder;
    std::vector<double> losses;
    int64_t step = 0;
    for (const Layout& each : layouts) {
      for (const double loss : train_part(each, step, step + 4, folder)) losses.push_back(loss);
      step += 4;
    }
    expect_close(losses, {alone.losses.begin(), alone.losses.begin() + 12}, 1e-5);
    // The weights are those of the state, whole, in the order of one rank's.
    testing::run_ranks(1, [&](Communicator& world) {
      Rank rank("transformer", one, world);
      const ParameterLayout& layout = rank.trainer().layout();
      std::vector<float> weights(static_cast<size_t>(layout.parameter_count()));
      load_model(folder / "model", layout, weights.data());
      load_training_state(folder / "state", rank.trainer());
      EXPECT_TRUE(std::equal(weights.begin(), weights.end(), rank.trainer().state("parameters")));
    });
  }
}

}  // namespace
}  // namespace linnet

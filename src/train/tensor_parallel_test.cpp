// Models that the ranks of a tensor group train together, with threads as ranks: they train as one rank does, with the
// same dropout masks, and checkpoints do not tell how many ranks wrote them.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/comm_testing.h"
#include "comm/tensor_group.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"
#include "train/families_testing.h"
#include "train/learner.h"
#include "train/sharded_step.h"

namespace linnet {
namespace {

constexpr int kSteps = 20;

using testing::Causal;
using testing::Family;
using testing::kVocabulary;

TrainerOptions options_of(const TensorRank& rank) {
  return {.optimizer = {.kind = OptimizerAttrs::Kind::kAdam, .weight_decay = 0.01, .clip_norm = 0.5},
          .tensor = rank,
          .recompute = RecomputeMode::kAuto};
}

// One rank's training of a family.
struct Rank {
  Rank(const std::string& name, Communicator& world, TrainerOptions options)
      : scope(world),
        family(testing::make_family(name)),
        learner(
            family->model(), [this](Trace& trace) { return family->loss(trace); }, options) {}
  explicit Rank(const std::string& name, Communicator& world)
      : Rank(name, world, options_of({world.rank(), world.size()})) {}

  StepReport step(int64_t step) {
    family->fill(learner, step % 2);  // the same batches again, which it learns
    return learner.trainer().step(0, 1e-3, step);
  }
  double evaluate() {
    family->fill(learner, 1000);
    return learner.evaluate();
  }

  TensorGroupScope scope;
  std::unique_ptr<Family> family;
  SingleShapeLearner learner;
};

struct Result {
  std::vector<double> losses, norms;
  int64_t bytes = 0, trained = 0;  // of the rank that has most
};

Result train(const std::string& name, int ranks, RecomputeMode recompute = RecomputeMode::kAuto) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& world) {
    TrainerOptions options = options_of({world.rank(), ranks});
    options.recompute = recompute;
    Rank rank(name, world, options);
    Result& result = results[static_cast<size_t>(world.rank())];
    for (int64_t step = 1; step <= kSteps; ++step) {
      const StepReport report = rank.step(step);
      result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
    }
    result.losses.push_back(rank.evaluate());
    result.bytes = static_cast<int64_t>(rank.learner.memory_bytes());
    result.trained = rank.learner.trainer().layout().trained_count();
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.losses, results[0].losses);
    EXPECT_EQ(result.norms, results[0].norms);
    results[0].bytes = std::max(results[0].bytes, result.bytes);
    results[0].trained = std::max(results[0].trained, result.trained);
  }
  return results[0];
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i + 1;
}

class TensorParallelTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallelTraining, TrainsAsOneRankDoes) {
  const Result alone = train(GetParam(), 1);
  EXPECT_LT(alone.losses[kSteps - 1], alone.losses[0]);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const Result together = train(GetParam(), ranks);
    expect_close(together.losses, alone.losses, 1e-5);
    expect_close(together.norms, alone.norms, 1e-3);
    EXPECT_LT(together.trained, alone.trained * 6 / 10);
    EXPECT_LE(together.bytes, alone.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelTraining,
                         ::testing::Values("gpt", "llama", "bert", "transformer", "t5"),
                         [](const auto& param) { return std::string(param.param); });

// Sums between ranks are computed again with the layers that have them.
TEST(TensorParallel, RecomputationDoesNotChangeABit) {
  const Result kept = train("gpt", 2), again = train("gpt", 2, RecomputeMode::kBlock);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.norms, kept.norms);
}

// `ranks` train the steps (first, last], from a checkpoint unless first is 0, and save one; their losses.
std::vector<double> train_part(int ranks, int64_t first, int64_t last, const testing::TemporaryFolder& folder) {
  std::vector<double> losses;
  testing::run_ranks(ranks, [&](Communicator& world) {
    Rank rank("gpt", world);
    Trainer& trainer = rank.learner.trainer();
    std::vector<int> own{world.rank()};
    RankGroup alone(world, own);
    WholeStates whole(trainer, alone, world, alone);
    const bool is_first = world.rank() == 0;
    if (first > 0) {
      if (is_first) EXPECT_EQ(load_training_state(folder / "state", trainer).step, first);
      const ParameterLayout& layout = trainer.layout();
      for (const std::string& state : trainer.states())
        for (const ParameterSlot& slot : layout.parameters())
          if (!layout.sharding_of(slot))
            broadcast(world, 0,
                      std::span(trainer.state(state) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())));
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

TEST(TensorParallel, CheckpointsDoNotTellHowManyRanksWroteThem) {
  const Result alone = train("gpt", 1);
  for (const std::vector<int>& ranks : {std::vector{2, 1, 4}, {1, 2, 1}}) {
    testing::TemporaryFolder folder;
    std::vector<double> losses;
    int64_t step = 0;
    for (const int each : ranks) {
      for (const double loss : train_part(each, step, step + 4, folder)) losses.push_back(loss);
      step += 4;
    }
    expect_close(losses, {alone.losses.begin(), alone.losses.begin() + 12}, 1e-5);
    // The weights are those of the state, whole.
    Causal<Gpt> one(GptConfig{.vocab_size = kVocabulary, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2});
    const ParameterLayout layout(one.net);
    std::vector<float> weights(static_cast<size_t>(layout.parameter_count()));
    load_model(folder / "model", layout, weights.data());
    SingleShapeLearner learner(one.net, [&](Trace& trace) { return one.loss(trace); });
    load_training_state(folder / "state", learner.trainer());
    EXPECT_TRUE(std::equal(weights.begin(), weights.end(), learner.trainer().state("parameters")));
  }
}

// Four ranks: two models of two ranks each, which train on different shards.
TEST(TensorParallel, TensorGroupsTrainOnDifferentData) {
  constexpr int64_t kShards = 2;
  const auto train_shards = [&](int ranks, int tensor, int zero) {
    std::vector<std::vector<double>> found(static_cast<size_t>(ranks));
    testing::run_ranks(ranks, [&](Communicator& world) {
      RankGroups groups(world, tensor);
      TrainerOptions options = options_of({groups.tensor.rank(), tensor});
      options.shards = {kShards, groups.data.rank(), groups.data.size()};
      options.divide_moments = zero > 0, options.divide_gradients = zero > 1;
      Rank rank("gpt", groups.tensor, options);
      Trainer& trainer = rank.learner.trainer();
      ShardedStep shards(trainer, groups.data, tensor > 1 ? &groups.tensor : nullptr);
      for (int64_t step = 1; step <= 5; ++step) {
        shards.begin();
        for (int64_t i = 0; i < options.shards.count(); ++i) {
          rank.family->fill(rank.learner, 10 * step + options.shards.first() + i);
          shards.accumulate(0, step, 0);
          shards.add();
        }
        shards.finish();
        const StepReport report = trainer.apply(1e-3, step);
        shards.share_update();
        found[static_cast<size_t>(world.rank())].push_back(report.loss);
        found[static_cast<size_t>(world.rank())].push_back(report.grad_norm);
      }
    });
    for (const std::vector<double>& each : found) EXPECT_EQ(each, found[0]);
    return found[0];
  };
  const std::vector<double> alone = train_shards(1, 1, 0);
  const std::vector<double> both = train_shards(4, 2, 0);
  expect_close(both, alone, 1e-5);
  EXPECT_EQ(train_shards(4, 2, 1), both);
  EXPECT_EQ(train_shards(4, 2, 2), both);
  EXPECT_EQ(train_shards(2, 2, 0), both);
}

}  // namespace
}  // namespace linnet

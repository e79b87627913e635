// Steps of several data shards, with threads as ranks: neither the number of ranks nor what they divide changes a bit.
#include "training/trainer/sharded_step.h"
#include <gtest/gtest.h>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include "comm_testing.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
using Kind = OptimizerAttrs::Kind;

constexpr int64_t kRows = 5, kChannels = 3;

// Batch normalization has buffers; there are parameters enough for several slices and buckets, and matrices that do not
// end where slices would. `wide` is used twice, so that its gradient is a sum.
struct Net : Module {
  BatchNorm norm{this, "norm", kChannels};
  Linear up{this, "up", kChannels, 100}, wide{this, "wide", 100, 100}, middle{this, "middle", 100, 150},
      head{this, "head", 150, 70};
  Tensor operator()(Tensor x) { return head(tanh(middle(tanh(wide(tanh(wide(up(norm(x))))))))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kChannels}});
    return {sum_to(square(net(x) + trace.number(-0.5)), {}), trace.number(kRows)};
  };
}

std::vector<float> batch(int64_t step, int64_t index) {
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * kChannels; ++i)
    x.push_back(std::sin(static_cast<float>(1.7 * i + 0.3 * index + 5 * step)) + 0.1F * static_cast<float>(index));
  return x;
}

struct Settings {
  int ranks = 1, zero = 0;
  int64_t shards = 4, micros = 1;
  OptimizerAttrs optimizer = {.weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9};
  std::vector<ParameterGroup> groups = {};
  LossScaleOptions loss_scale = {};

  std::string text() const {
    return std::to_string(ranks) + " ranks, zero " + std::to_string(zero) + ", " + std::to_string(shards) +
           " shards of " + std::to_string(micros) + ", " +
           enum_names(optimizer.kind)[static_cast<size_t>(optimizer.kind)];
  }
};

// One of the ranks.
struct Rank {
  Rank(const Settings& settings, Communicator& communicator)
      : world(communicator), learner(net, loss_of(net),
                                 {.optimizer = settings.optimizer,
                                     .accumulate_steps = settings.micros,
                                     .shards = {settings.shards, world.rank(), settings.ranks},
                                     .divide_moments = settings.zero > 0,
                                     .divide_gradients = settings.zero > 1,
                                     .loss_scale = settings.loss_scale},
                                 {}, settings.groups),
        shards(learner.trainer(), world),
        whole(learner.trainer().state(), world, single_process(), single_process(), 200) {}

  StepReport step(int64_t number) {
    const BatchShare share = shards.batches();
    int64_t taken = 0;
    shards.begin();
    for (int64_t shard = 0; shard < trainer().options().shards.count(); ++shard) {
      for (int64_t micro = 0; micro < trainer().options().accumulate_steps; ++micro) {
        learner.set<float>("x", batch(number, share.index(taken++)));
        shards.accumulate(0, number, micro);
      }
      shards.add();
    }
    shards.finish();
    const StepReport report = trainer().apply(0.01, number);
    shards.share_update();
    return report;
  }
  Trainer& trainer() { return learner.trainer(); }

  Communicator& world;
  Net net;
  SingleShapeLearner learner;
  ShardedStep shards;
  WholeStates whole;
};

struct Result {
  std::vector<float> parameters, average;  // with buffers
  std::vector<double> losses, norms;
  bool operator==(const Result&) const = default;
};

void add_report(Result& result, const StepReport& report) {
  result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
}

void add_states(Result& result, Rank& rank) {
  rank.shards.share_average();
  const TrainingState& states = rank.trainer().state();
  const auto values = [&](const char* state, int64_t count) {
    return std::vector<float>(states.flat(state), states.flat(state) + count);
  };
  result.parameters = values("parameters", states.layout().stored_count());
  if (states.evaluated() == "ema") result.average = values("ema", states.layout().trained_count());
}

// What rank 0 has after three steps; all ranks must have the same.
Result train(const Settings& settings) {
  std::vector<Result> results(static_cast<size_t>(settings.ranks));
  testing::run_ranks(settings.ranks, [&](Communicator& world) {
    Rank rank(settings, world);
    Result& result = results[static_cast<size_t>(world.rank())];
    for (int64_t step = 1; step <= 3; ++step) {
      const StepReport report = rank.step(step);
      EXPECT_EQ(report.tokens, settings.shards * settings.micros * kRows);
      add_report(result, report);
    }
    add_states(result, rank);
  });
  for (const Result& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

std::vector<OptimizerAttrs> optimizers() {
  return {{.weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9},
      {.kind = Kind::kAdam8bit, .weight_decay = 0.1, .decoupled = true, .clip_norm = 1, .ema_decay = 0.9},
      {.kind = Kind::kMuon, .momentum = 0.95, .weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9},
      {.kind = Kind::kAdafactor, .weight_decay = 0.1, .clip_norm = 1, .ema_decay = 0.9}};
}

TEST(ShardedStep, NeitherRanksNorWhatTheyDivideChangeABit) {
  for (const auto& [shards, micros] : {std::pair<int64_t, int64_t>{4, 1}, {4, 2}, {6, 1}}) {
    const Result alone = train({.shards = shards, .micros = micros});
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (const int ranks : {2, 3, 4})
      for (const int zero : {0, 1, 2}) {
        if (shards % ranks != 0) continue;
        const Settings settings{.ranks = ranks, .zero = zero, .shards = shards, .micros = micros};
        SCOPED_TRACE(settings.text());
        EXPECT_EQ(train(settings), alone);
      }
  }
}

// Those that update blocks, matrices or tensors as a whole: each belongs to one rank.
TEST(ShardedStep, EveryOptimizerCanBeDivided) {
  for (const OptimizerAttrs& optimizer : optimizers()) {
    const Result alone = train({.optimizer = optimizer});
    for (const int ranks : {2, 4})
      for (const int zero : {1, 2}) {
        const Settings settings{.ranks = ranks, .zero = zero, .optimizer = optimizer};
        SCOPED_TRACE(settings.text());
        EXPECT_EQ(train(settings), alone);
      }
  }
}

TEST(ShardedStep, GroupsWithOptimizersOfTheirOwnCanBeDivided) {
  const auto settings = [](int ranks, int zero) {
    return Settings{.ranks = ranks,
        .zero = zero,
        .groups = {{.patterns = {"wide.*", "up.*"}, .optimizer = OptimizerAttrs{.kind = Kind::kMuon}},
            {.patterns = {"head.*"}, .optimizer = OptimizerAttrs{.kind = Kind::kAdafactor}}}};
  };
  const Result alone = train(settings(1, 0));
  for (const int zero : {0, 1, 2}) EXPECT_EQ(train(settings(4, zero)), alone) << zero;
}

// The norm overflows until the scale has been halved often enough: all ranks leave the same steps out.
TEST(ShardedStep, ALossScaleSkipsTheSameSteps) {
  const auto train_scaled = [](int ranks, int zero) {
    Result result;
    std::vector<bool> skipped;
    testing::run_ranks(ranks, [&](Communicator& world) {
      Settings settings{.ranks = ranks, .zero = zero};
      settings.loss_scale = {.initial = std::ldexp(1.0, 56)};
      Rank rank(settings, world);
      for (int64_t step = 1; step <= 10; ++step) {
        const StepReport report = rank.step(step);
        if (world.rank() != 0) continue;
        skipped.push_back(report.skipped);
        if (!report.skipped) add_report(result, report);
      }
      if (world.rank() == 0) add_states(result, rank);
      else rank.shards.share_average();
    });
    EXPECT_TRUE(skipped.front());
    EXPECT_FALSE(skipped.back());
    return result;
  };
  const Result alone = train_scaled(1, 0);
  for (const int zero : {0, 1, 2}) EXPECT_EQ(train_scaled(2, zero), alone) << zero;
}

// Trains the steps (first, last], from a checkpoint unless first is 0, and saves one.
Result train_part(const Settings& settings, int64_t first, int64_t last, const std::string& path) {
  Result result;
  testing::run_ranks(settings.ranks, [&](Communicator& world) {
    Rank rank(settings, world);
    Trainer& trainer = rank.trainer();
    const bool is_first = world.rank() == 0;
    if (first > 0) {
      // Every rank reads what it has as a whole; training/run/run_setup.cpp sends that instead.
      EXPECT_EQ(load_training_state(path, trainer).step, first);
      load_divided_states(path, trainer.state(), rank.whole);
    }
    barrier(world);
    for (int64_t step = first + 1; step <= last; ++step) {
      const StepReport report = rank.step(step);
      if (is_first) add_report(result, report);
    }
    rank.shards.share_average();
    if (is_first) save_training_state(path, trainer, {.step = last}, {}, &rank.whole);
    else give_training_state(trainer.state(), rank.whole);
    if (is_first) add_states(result, rank);
    else rank.shards.share_average();
  });
  return result;
}

TEST(ShardedStep, CheckpointsDoNotTellWhatRanksDivide) {
  for (const OptimizerAttrs& optimizer : optimizers()) {
    const testing::TemporaryFolder folder;
    const Result alone = train_part({.optimizer = optimizer}, 0, 4, folder / "alone");
    Result together;
    int64_t step = 0;
    for (const auto& [ranks, zero] : {std::pair{4, 2}, {2, 1}, {1, 2}, {2, 2}}) {
      const Settings settings{.ranks = ranks, .zero = zero, .optimizer = optimizer};
      SCOPED_TRACE(settings.text());
      const Result part = train_part(settings, step, step + 1, folder / "state");
      together.losses.push_back(part.losses.at(0)), together.norms.push_back(part.norms.at(0));
      together.parameters = part.parameters, together.average = part.average;
      ++step;
    }
    EXPECT_EQ(together, alone);
    const auto bytes_of = [&](const char* name) {
      const SafetensorsFile file(folder / name);
      std::map<std::string, std::string> tensors;
      for (const SafetensorsEntry& entry : file.entries())
        tensors[entry.name] = {reinterpret_cast<const char*>(entry.data), entry.bytes()};
      return tensors;
    };
    EXPECT_EQ(bytes_of("state"), bytes_of("alone"));
  }
}

size_t bytes_of(const Store& store, MemoryKind kind) {
  size_t bytes = 0;
  for (const Store::Region& region : store.regions()) bytes += region.kind == kind ? region.bytes : 0;
  return bytes;
}

// Of all ranks together: moments are there once, and so are gradients.
TEST(ShardedStep, EachStageTakesLessMemory) {
  constexpr int kRanks = 4;
  for (const OptimizerAttrs& optimizer : optimizers()) {
    size_t moments[3] = {}, gradients[3] = {};
    for (const int zero : {0, 1, 2}) {
      std::vector<std::array<size_t, 2>> of_ranks(kRanks);
      testing::run_ranks(kRanks, [&](Communicator& world) {
        Rank rank({.ranks = kRanks, .zero = zero, .optimizer = optimizer}, world);
        const Store& store = rank.learner.store();
        of_ranks[static_cast<size_t>(world.rank())] = {
            bytes_of(store, MemoryKind::kOptimizer), bytes_of(store, MemoryKind::kGradients)};
      });
      for (const auto& [of_moments, of_gradients] : of_ranks)
        moments[zero] += of_moments, gradients[zero] += of_gradients;
    }
    SCOPED_TRACE(enum_names(optimizer.kind)[static_cast<size_t>(optimizer.kind)]);
    EXPECT_LT(moments[1], moments[0]);
    EXPECT_EQ(moments[2], moments[1]);
    EXPECT_EQ(gradients[1], gradients[0]);
    EXPECT_LT(gradients[2], gradients[1] * 3 / 10);
  }
}

// Of divided moments and gradients a rank has slices alone.
TEST(ShardedStep, AStepThatIsNotFiniteNamesItsNodeWhateverRanksDivide) {
  for (const Kind kind : {Kind::kAdam, Kind::kMuon})
    for (const int zero : {0, 1, 2}) {
      const Settings settings{.ranks = 2, .zero = zero, .optimizer = {.kind = kind}};
      SCOPED_TRACE(settings.text());
      testing::run_ranks(settings.ranks, [&](Communicator& world) {
        Rank rank(settings, world);
        rank.step(1);
        for (const ParameterSlot& slot : rank.trainer().state().layout().parameters())
          if (slot.spec.name == "head.weight")
            rank.trainer().state().flat("parameters")[slot.offset] = std::numeric_limits<float>::max();
        EXPECT_FALSE(rank.step(2).finite);
        EXPECT_NE(rank.trainer().find_non_finite(0).find("pointwise of f32[5, 70]"), std::string::npos)
            << rank.trainer().find_non_finite(0);
      });
    }
}

// Each shard begins with the statistics of the step before; the mean over the shards is what remains.
TEST(ShardedStep, RunningStatisticsAreTheMeanOverTheShards) {
  Rank rank({}, single_process());
  double expected = 0;
  for (int64_t shard = 0; shard < 4; ++shard)
    for (int64_t row = 0; row < kRows; ++row)
      expected += 0.1 * batch(1, shard)[static_cast<size_t>(row * kChannels)] / kRows / 4;
  rank.step(1);
  EXPECT_NEAR(rank.learner.parameter("norm.running_mean")[0], expected, 1e-6);
}
}  // namespace
}  // namespace linnet

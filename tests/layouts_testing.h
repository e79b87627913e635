// Ranks that share the layers of a small model and its data, with threads as ranks: how they train it, and what the
// tests of all kinds of layouts compare.
#pragma once
#include <gtest/gtest.h>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "comm_testing.h"
#include "distributed/comm/tensor_group.h"
#include "families_testing.h"
#include "models/nn/pipeline_parallel.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/sharded_step.h"

namespace linnet::testing {
inline constexpr int kSteps = 20;

struct Layout {
  int data = 1, tensor = 1;
  PipelineRank pipeline = {};
  bool divides_moments = false, divides_gradients = false;
  int64_t shards = 1, micro_batches = 2;
  int64_t begun = 0;  // micro-batches of each step, as at the end of an epoch; 0: all
  RecomputeMode recompute = RecomputeMode::kAuto;
  int ranks() const { return data * tensor * pipeline.ranks; }
};

// A rank of a layout, which trains a family (families_testing.h).
struct LayoutRank {
  LayoutRank(const std::string& name, const Layout& layout, Communicator& world)
      : groups(world, layout.tensor, layout.pipeline.ranks),
        begun(layout.begun > 0 ? layout.begun : layout.micro_batches), family(make_family(name)),
        learner(
            family->model(), [this](Trace& trace) { return family->loss(trace); }, options_of(layout)) {
    trainer().state().set_groups({&groups.tensor, &groups.pipeline});
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
        .divide_gradients = layout.divides_gradients,
        .recompute = layout.recompute};
    options.pipeline.rank = groups.pipeline.rank();
    return options;
  }
  Trainer& trainer() { return learner.trainer(); }

  // The same batches again every second step, which the model learns.
  StepReport step(int64_t step) {
    const int64_t micros = trainer().options().accumulate_steps;
    if (!sharded) {
      for (int64_t micro = 0; micro < begun; ++micro) {
        family->fill(learner, step % 2 + 10 * micro);
        if (!trainer().options().accumulates()) return trainer().step(0, 1e-3, step);
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
  const int64_t begun;
  std::unique_ptr<Family> family;
  SingleShapeLearner learner;
  std::optional<ShardedStep> sharded;
};

struct LayoutResult {
  std::vector<double> losses, norms;  // of the steps; behind them the loss of an evaluation
  std::vector<int64_t> tokens;
  std::vector<uint64_t> bytes;   // by rank
  std::vector<int64_t> trained;  // by rank
  std::vector<std::string> stages;
};

// All ranks must find the same.
inline LayoutResult train_layout(const std::string& family, const Layout& layout, int steps = kSteps) {
  std::vector<LayoutResult> results(static_cast<size_t>(layout.ranks()));
  run_ranks(layout.ranks(), [&](Communicator& world) {
    LayoutRank rank(family, layout, world);
    LayoutResult& result = results[static_cast<size_t>(world.rank())];
    for (int64_t step = 1; step <= steps; ++step) {
      const StepReport report = rank.step(step);
      result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
      result.tokens.push_back(report.tokens);
    }
    result.losses.push_back(rank.evaluate());
    result.bytes = {rank.learner.memory_bytes()};
    result.trained = {rank.trainer().state().layout().trained_count()};
    result.stages = {stage_text(rank.trainer().state().layout())};
  });
  LayoutResult& first = results[0];
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i].losses, first.losses);
    EXPECT_EQ(results[i].norms, first.norms);
    EXPECT_EQ(results[i].tokens, first.tokens);
    first.bytes.push_back(results[i].bytes[0]), first.trained.push_back(results[i].trained[0]);
    first.stages.push_back(results[i].stages[0]);
  }
  return first;
}

inline void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "value " << i;
}

// As one rank trains, but for the order of sums.
inline void expect_as_alone(const LayoutResult& together, const LayoutResult& alone) {
  expect_close(together.losses, alone.losses, 1e-5);
  expect_close(together.norms, alone.norms, 2e-3);
  EXPECT_EQ(together.tokens, alone.tokens);
}

// What ranks do not divide is shared as a run shares it (training/run/run_setup.h).
inline void share_undivided(const TrainingState& states, Communicator& world) {
  const ParameterLayout& layout = states.layout();
  for (const std::string& state : states.names()) {
    if (states.is_divided(state) || stages_of(layout)) continue;
    for (const ParameterSlot& slot : layout.trained())
      if (!layout.sharding_of(slot))
        broadcast(
            world, 0, std::span(states.flat(state) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())));
  }
}

// Trains the steps (first, last], from the checkpoint in `folder` unless first is 0, and saves the files "state" and
// "model" there; the losses.
inline std::vector<double> train_part(
    const std::string& family, const Layout& layout, int64_t first, int64_t last, const TemporaryFolder& folder) {
  std::vector<double> losses;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    LayoutRank rank(family, layout, world);
    Trainer& trainer = rank.trainer();
    constexpr int64_t kPieceFloats = 1000;  // most tensors have several pieces
    WholeStates whole(trainer.state(), rank.groups.data, rank.groups.tensor, rank.groups.pipeline, kPieceFloats);
    const bool is_first = world.rank() == 0;
    if (first > 0) {
      if (is_first) {
        EXPECT_EQ(load_training_state(folder / "state", trainer).step, first);
      }
      share_undivided(trainer.state(), world);
      load_divided_states(folder / "state", trainer.state(), whole);
    }
    for (int64_t step = first + 1; step <= last; ++step) {
      const double loss = rank.step(step).loss;
      if (is_first) losses.push_back(loss);
    }
    if (rank.sharded) rank.sharded->share_average();
    if (is_first) save_training_state(folder / "state", trainer, {.step = last}, {}, &whole);
    else give_training_state(trainer.state(), whole);
    save_divided_model(folder / "model", trainer.state(), "parameters", {}, whole);
  });
  return losses;
}

// Each layout trains four steps and goes on from the checkpoint of the one before. `alone`: what one rank of `one` has
// found in as many steps. The files hold whole weights, in the order of one rank's.
inline void expect_layouts_go_on(
    const std::string& family, const std::vector<Layout>& layouts, const Layout& one, const LayoutResult& alone) {
  TemporaryFolder folder;
  std::vector<double> losses;
  int64_t step = 0;
  for (const Layout& each : layouts) {
    for (const double loss : train_part(family, each, step, step + 4, folder)) losses.push_back(loss);
    step += 4;
  }
  expect_close(losses, {alone.losses.begin(), alone.losses.begin() + step}, 1e-5);
  run_ranks(1, [&](Communicator& world) {
    LayoutRank rank(family, one, world);
    const ParameterLayout& layout = rank.trainer().state().layout();
    std::vector<float> weights(static_cast<size_t>(layout.parameter_count()));
    load_model(folder / "model", layout, weights.data());
    load_training_state(folder / "state", rank.trainer());
    EXPECT_TRUE(std::equal(weights.begin(), weights.end(), rank.trainer().state().flat("parameters")));
  });
}
}  // namespace linnet::testing

// Parameters in groups: frozen ones and those with a learning rate of their own, through whole training steps.
#include <gtest/gtest.h>
#include <cmath>
#include "engine/ir/op.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
struct Net : Module {
  Linear first{this, "first", 3, 8}, second{this, "second", 8, 8}, head{this, "head", 8, 1};
  Tensor operator()(Tensor x) { return head(relu(second(relu(first(x))))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {6, 3}}), y = trace.input("y", {DType::kF32, {6, 1}});
    return {sum_to(square(net(x) - y), {}), trace.number(6)};
  };
}

using Groups = std::vector<ParameterGroup>;

struct Training {
  explicit Training(const Groups& groups, TrainerOptions options = {})
      : learner(net, loss_of(net), options, {}, groups) {
    std::vector<float> x, y;
    for (int i = 0; i < 18; ++i) x.push_back(std::sin(static_cast<float>(i)));
    for (int i = 0; i < 6; ++i) y.push_back(std::cos(static_cast<float>(i)));
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

const Groups kFrozenFirst{{.patterns = {"first.*"}, .frozen = true}};

TEST(ParameterGroups, FrozenParametersKeepEveryBitAndTheRestLearns) {
  for (const int64_t micro_batches : {1, 2}) {
    Training training(
        kFrozenFirst, {.optimizer = {.weight_decay = 0.1, .ema_decay = 0.9}, .accumulate_steps = micro_batches});
    const auto frozen = training.values("first.weight"), trained = training.values("head.weight");
    for (int64_t step = 1; step <= 20; ++step) {
      Trainer& trainer = training.learner.trainer();
      if (trainer.options().accumulates()) {
        for (int64_t micro = 0; micro < micro_batches; ++micro) trainer.accumulate(0, step, micro);
        trainer.apply(0.01, step);
      } else {
        trainer.step(0, 0.01, step);
      }
    }
    EXPECT_EQ(training.values("first.weight"), frozen);
    EXPECT_NE(training.values("head.weight"), trained);
    EXPECT_TRUE(std::isfinite(training.learner.evaluate()));  // on the average of what is trained
  }
}

TEST(ParameterGroups, NothingIsTracedBackwardForFrozenLayers) {
  Net net;
  const ParameterLayout layout(net, kFrozenFirst);
  const Graph graph = single_graph(layout, loss_of(net), {});
  int products = 0;
  for (const Node& node : graph.nodes())
    if (std::string(node.op->name) == "matmul" && graph.scope_path(node.scope) == "first") ++products;
  EXPECT_EQ(products, 1) << dump(graph);  // its forward product alone
  EXPECT_EQ(graph.value(*graph.find_input("moment1")).type.shape.elements(), layout.trained_count());
  Training some(kFrozenFirst), all({});
  EXPECT_LT(some.learner.memory_bytes(), all.learner.memory_bytes() + 1);
  EXPECT_EQ(all.learner.trainer().state().layout().trained_count() - layout.trained_count(), 32);
}

// Elementwise updates: cutting the parameters into groups that are trained alike changes no bit.
TEST(ParameterGroups, GroupsThatAreTrainedAlikeTrainAsOne) {
  Training one({}), three({{.patterns = {"second.*"}}, {.patterns = {"*.bias"}}});
  for (int step = 0; step < 10; ++step) EXPECT_EQ(one.learner.step(0.01).loss, three.learner.step(0.01).loss) << step;
  for (const char* name : {"first.weight", "second.weight", "head.bias"})
    EXPECT_EQ(one.values(name), three.values(name)) << name;
}

TEST(ParameterGroups, EachHasItsLearningRateDecayAndOptimizer) {
  const OptimizerAttrs sgd{.kind = OptimizerAttrs::Kind::kSgd, .weight_decay = 0};
  Training usual({}, {.optimizer = sgd}),
      halved({{.patterns = {"head.weight"}, .rate_factor = 0.5},
                 {.patterns = {"second.*"}, .optimizer = OptimizerAttrs{.kind = OptimizerAttrs::Kind::kAdam}}},
          {.optimizer = sgd});
  const auto start = usual.values("head.weight"), first = usual.values("first.weight"),
             second = usual.values("second.weight");
  usual.learner.step(0.1);
  halved.learner.step(0.1);
  const auto whole = usual.values("head.weight"), half = halved.values("head.weight");
  for (size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(half[i] - start[i], 0.5 * (whole[i] - start[i]), 1e-6) << i;
  EXPECT_EQ(halved.values("first.weight"), usual.values("first.weight"));
  // Adam's first step is the learning rate, whatever the gradient's size.
  const auto adam = halved.values("second.weight");
  int moved = 0;
  for (size_t i = 0; i < adam.size(); ++i)
    if (adam[i] != second[i]) {
      EXPECT_NEAR(std::abs(adam[i] - second[i]), 0.1, 1e-3);
      ++moved;
    }
  EXPECT_GT(moved, 8);
}

TEST(ParameterGroups, TheNormThatClipsIsThatOfAllGradients) {
  const OptimizerAttrs clipped{.kind = OptimizerAttrs::Kind::kSgd, .clip_norm = 0.01};
  Training one({}, {.optimizer = clipped}), two({{.patterns = {"head.*"}}}, {.optimizer = clipped});
  EXPECT_NEAR(one.learner.step(0.1).grad_norm, two.learner.step(0.1).grad_norm, 1e-6);
  const auto a = one.values("head.weight"), b = two.values("head.weight");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-7);
}

// Frozen weights in another storage train the rest as the same weights in fp32, rounded beforehand, would; checkpoints
// bring every bit back; saved models hold the rounded values.
TEST(ParameterGroups, AStorageOfTheirOwnOnlyRoundsFrozenWeights) {
  const testing::TemporaryFolder folder;
  const std::string state = folder / "state", model = folder / "model";
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks}) {
    // The second layer's input needs a gradient, so its weight is read forward and backward.
    const Groups packed{{.patterns = {"second.*"}, .frozen = true, .storage = format}},
        plain{{.patterns = {"second.*"}, .frozen = true}};
    Training training(packed, {.optimizer = {.ema_decay = 0.9}});
    const Trainer& trainer = training.learner.trainer();
    EXPECT_EQ(trainer.state().layout().quantized().size(), 1U);
    if (format != WeightFormat::kBf16) {  // which trained weights may be stored in: bf16_weights_test.cpp
      EXPECT_THROW(ParameterLayout(training.net, Groups{{.patterns = {"head.*"}, .storage = format}}), Error);
    }
    save_model(model, trainer.state().layout(), trainer.state().values("parameters"), {});

    Training same(plain, {.optimizer = {.ema_decay = 0.9}, .seed = 5}),
        again(packed, {.optimizer = {.ema_decay = 0.9}, .seed = 6});
    for (Training* other : {&same, &again})
      other->learner.trainer().state().load_parameters(
          [&](const ParameterTarget& to) { load_model(model, other->learner.trainer().state().layout(), to); });
    const std::vector<float> rounded = same.values("second.weight");
    std::vector<float> unpacked;
    for (int64_t step = 1; step <= 5; ++step) {
      const double loss = training.learner.trainer().step(0, 0.01, step).loss;
      EXPECT_NEAR(loss, same.learner.trainer().step(0, 0.01, step).loss, 1e-5 * loss) << step;
      if (format == WeightFormat::kBf16) {  // what was rounded once is the same when it is rounded again
        EXPECT_EQ(loss, again.learner.trainer().step(0, 0.01, step).loss);
      }
    }
    save_training_state(state, trainer, {.step = 5}, {});
    Training resumed(packed, {.optimizer = {.ema_decay = 0.9}, .seed = 7});
    load_training_state(state, resumed.learner.trainer());
    for (int64_t step = 6; step <= 8; ++step)
      EXPECT_EQ(
          resumed.learner.trainer().step(0, 0.01, step).loss, training.learner.trainer().step(0, 0.01, step).loss);
    save_model(model, trainer.state().layout(), trainer.state().values(trainer.state().evaluated()), {});
    Training loaded({});
    load_model(model, loaded.learner.trainer().state().layout(), loaded.learner.trainer().state().flat("parameters"));
    EXPECT_EQ(loaded.values("second.weight"), rounded);
    EXPECT_EQ(resumed.learner.evaluate(), training.learner.evaluate());
  }
}

TEST(ParameterGroups, ACheckpointHoldsFrozenParametersAndResumes) {
  const testing::TemporaryFolder folder;
  const Groups groups{{.patterns = {"first.*"}, .frozen = true}, {.patterns = {"head.*"}, .rate_factor = 0.1}};
  const TrainerOptions options{.optimizer = {.ema_decay = 0.9}};
  Training training(groups, options);
  for (int step = 0; step < 5; ++step) training.learner.step(0.01);
  const std::string state = folder / "state", model = folder / "model";
  save_training_state(state, training.learner.trainer(), {.step = 5}, {});
  const TrainingState& trained = training.learner.trainer().state();
  save_model(model, trained.layout(), trained.values(trained.evaluated()), {});

  TrainerOptions other = options;
  other.seed = 7;
  Training resumed(groups, other);
  EXPECT_EQ(load_training_state(state, resumed.learner.trainer()).step, 5);
  for (int64_t step = 6; step <= 9; ++step)
    EXPECT_EQ(resumed.learner.trainer().step(0, 0.01, step).loss, training.learner.trainer().step(0, 0.01, step).loss);

  Training loaded({});  // a layout without groups reads the same names
  load_model(model, loaded.learner.trainer().state().layout(), loaded.learner.trainer().state().flat("parameters"));
  EXPECT_EQ(loaded.values("first.weight"), training.values("first.weight"));
}
}  // namespace
}  // namespace linnet

// Weights that are trained and stored in bf16: updates in fp32, rounded stochastically.
#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
using Groups = std::vector<ParameterGroup>;
using Kind = OptimizerAttrs::Kind;

constexpr int64_t kRows = 48, kWords = 40, kWidth = 24;

// A table that is the head, too, as in a language model, between them layers with biases.
struct Net : Module {
  Embedding table{this, "table", kWords, kWidth, normal_init(0.3)};
  Linear first{this, "first", kWidth, 32}, second{this, "second", 32, kWidth};
  Tensor operator()(Tensor ids) { return second(relu(first(table(ids)))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const TensorType ids{DType::kI32, {kRows}};
    const Tensor hidden = net(trace.input("x", ids));
    return {linear_cross_entropy_sum(hidden, net.table.weight, {}, trace.input("y", ids)), trace.number(kRows)};
  };
}

const Groups kStored{{.patterns = {"*"}, .storage = WeightFormat::kBf16}};

struct Training {
  explicit Training(const Groups& groups, TrainerOptions options = {})
      : learner(net, loss_of(net), options, {}, groups) {
    std::vector<int32_t> x, y;
    for (int32_t i = 0; i < kRows; ++i) x.push_back(i % kWords), y.push_back((i * 7 + 3) % kWords);
    learner.set<int32_t>("x", x);
    learner.set<int32_t>("y", y);
  }
  Trainer& trainer() { return learner.trainer(); }
  double step(int64_t step, double rate) {
    if (!trainer().options().accumulates()) return trainer().step(0, rate, step).loss;
    for (int64_t micro = 0; micro < trainer().options().accumulate_steps; ++micro) trainer().accumulate(0, step, micro);
    return trainer().apply(rate, step).loss;
  }
  // The values of all parameters, in the order of the layout.
  std::vector<float> values() {
    std::vector<float> all, unpacked;
    for (const ParameterSlot& slot : trainer().state().layout().parameters()) {
      const float* first = trainer().state().values("parameters").of(slot, unpacked);
      all.insert(all.end(), first, first + slot.spec.shape.elements());
    }
    return all;
  }
  // What bf16 weights without stochastic rounding would be.
  void round_to_nearest() {
    for (const ParameterSlot& slot : trainer().state().layout().parameters()) {
      if (slot.spec.shape.rank() != 2) continue;
      for (float& x : std::span(
               trainer().state().flat("parameters") + slot.offset, static_cast<size_t>(slot.spec.shape.elements())))
        x = round_to_bf16(x);
    }
  }
  Net net;
  SingleShapeLearner learner;
};

OptimizerAttrs optimizer(Kind kind) {
  OptimizerAttrs attrs{.kind = kind, .weight_decay = 0.01, .decoupled = true, .clip_norm = 1};
  if (kind == Kind::kMuon) attrs.momentum = 0.95;
  return attrs;
}

// With a learning rate so small that an update is less than half of the distance between neighbors of bf16.
TEST(Bf16Weights, LearnAsInFp32WhereRoundingToNearestStalls) {
  constexpr double kRate = 1e-4;
  constexpr int64_t kSteps = 400;
  const TrainerOptions options{.optimizer = optimizer(Kind::kAdam)};
  Training whole({}, options), stored(kStored, options), nearest({}, options);
  nearest.round_to_nearest();
  double first = 0, in_fp32 = 0, in_bf16 = 0, to_nearest = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    in_fp32 = whole.step(step, kRate), in_bf16 = stored.step(step, kRate), to_nearest = nearest.step(step, kRate);
    nearest.round_to_nearest();
    if (step == 1) first = in_fp32;
  }
  ASSERT_LT(in_fp32, 0.9 * first);
  EXPECT_NEAR(in_bf16, in_fp32, 0.1 * (first - in_fp32));
  EXPECT_GT(to_nearest, in_fp32 + 0.4 * (first - in_fp32));
}

TEST(Bf16Weights, TakeHalfTheMemory) {
  Training whole({}), stored(kStored);
  const auto matrices = static_cast<size_t>(kWords * kWidth + 2 * 32 * kWidth);
  EXPECT_EQ(stored.trainer().state().layout().quantized_bytes(), 2 * matrices);
  EXPECT_EQ(stored.trainer().state().layout().packed_ranges().size(), 3U);
  EXPECT_EQ(stored.trainer().state().layout().trained_count(), 32 + kWidth);  // the biases, in fp32
  // No product, lookup or loss has the numbers of a weight in fp32 in memory; an update has, of one matrix.
  int unpacked = 0;
  for (const Node& node : stored.trainer().plans().by_name().at("train.0")->graph.nodes())
    unpacked += std::string(node.op->name) == "dequantize";
  EXPECT_EQ(unpacked, 3);
}

TEST(Bf16Weights, EveryOptimizerTrainsThemAndAStepThatIsNotFiniteChangesNothing) {
  for (const Kind kind : {Kind::kAdam, Kind::kSgd, Kind::kLion, Kind::kAdam8bit, Kind::kMuon, Kind::kAdafactor})
    for (const int64_t micro_batches : {1, 2}) {
      SCOPED_TRACE(static_cast<int>(kind));
      Training training(kStored, {.optimizer = optimizer(kind), .accumulate_steps = micro_batches});
      const double rate = kind == Kind::kSgd ? 0.3 : kind == Kind::kLion ? 1e-3 : 0.01;
      const double first = training.step(1, rate);
      double last = 0;
      for (int64_t step = 2; step <= 30; ++step) last = training.step(step, rate);
      EXPECT_LT(last, 0.9 * first);
      training.trainer().state().flat("parameters")[0] = INFINITY;
      const std::vector<float> before = training.values();
      training.step(31, rate);
      EXPECT_EQ(training.values(), before);
    }
}

TEST(Bf16Weights, AreTheSameBitsForAnyNumberOfThreadsAndAfterACheckpoint) {
  const testing::TemporaryFolder folder;
  const std::string state = folder / "state", model = folder / "model";
  for (const Kind kind : {Kind::kAdam, Kind::kAdam8bit, Kind::kMuon}) {
    TrainerOptions options{.optimizer = optimizer(kind), .seed = 3};
    Training one(kStored, options);
    options.threads = 3;
    Training three(kStored, options);
    for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(one.step(step, 0.01), three.step(step, 0.01));
    EXPECT_EQ(one.values(), three.values());

    save_training_state(state, one.trainer(), {.step = 5}, {});
    Training resumed(kStored, options);
    EXPECT_NE(resumed.values(), one.values());
    load_training_state(state, resumed.trainer());
    for (int64_t step = 6; step <= 9; ++step) EXPECT_EQ(one.step(step, 0.01), resumed.step(step, 0.01));
    EXPECT_EQ(one.values(), resumed.values());
    Training other(kStored, {.optimizer = options.optimizer, .seed = 4});
    load_training_state(state, other.trainer());
    other.step(6, 0.01), other.step(7, 0.01), other.step(8, 0.01), other.step(9, 0.01);
    EXPECT_NE(one.values(), other.values()) << "another seed rounds otherwise";
  }
  // A saved model has the numbers as fp32, which read back are the same.
  Training training(kStored, {}), plain({}, {}), again(kStored, {.seed = 9});
  for (int64_t step = 1; step <= 3; ++step) training.step(step, 0.01);
  save_model(model, training.trainer().state().layout(), training.trainer().state().values("parameters"), {});
  for (Training* to : {&plain, &again})
    to->trainer().state().load_parameters(
        [&](const ParameterTarget& target) { load_model(model, to->trainer().state().layout(), target); });
  EXPECT_EQ(again.values(), training.values());
  EXPECT_NEAR(plain.learner.evaluate(), training.learner.evaluate(), 1e-5);
}

TEST(Bf16Weights, RefuseWhatTheyDoNotHave) {
  EXPECT_THROW(Training(kStored, {.optimizer = {.ema_decay = 0.9}}), Error);
  EXPECT_THROW(Training({{.patterns = {"*"}, .storage = WeightFormat::kInt8Blocks}}), Error);
  const Groups all{{.patterns = {"first.weight", "second.weight", "table.weight"}, .storage = WeightFormat::kBf16},
      {.patterns = {"*"}, .frozen = true}};
  EXPECT_THROW(Training{all}, Error);  // nothing is left in fp32
}
}  // namespace
}  // namespace linnet

// Optimizers that keep or compute something else than a number for each parameter: through whole training steps.
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "temporary_folder.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/learner.h"
#include "training/trainer/range_update.h"

namespace linnet {
namespace {
using Kind = OptimizerAttrs::Kind;

constexpr int64_t kRows = 32, kWidth = 24;

struct Net : Module {
  Linear first{this, "first", kWidth, 40}, second{this, "second", 40, 40}, head{this, "head", 40, kWidth};
  LayerNorm norm{this, "norm", 40};
  Tensor operator()(Tensor x) { return head(norm(relu(second(relu(first(x)))))); }
};

LossFunction loss_of(Net& net) {
  return [&net](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {kRows, kWidth}}),
                 y = trace.input("y", {DType::kF32, {kRows, kWidth}});
    return {sum_to(square(net(x) - y), {}), trace.number(kRows)};
  };
}

struct Training {
  explicit Training(const TrainerOptions& options, const std::vector<ParameterGroup>& groups = {})
      : learner(net, loss_of(net), options, {}, groups) {
    fill(1);
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
  StepReport step(double rate, int64_t step) {
    if (!trainer().options().accumulates()) return trainer().step(0, rate, step);
    for (int64_t micro = 0; micro < trainer().options().accumulate_steps; ++micro) trainer().accumulate(0, step, micro);
    return trainer().apply(rate, step);
  }
  // All that is kept between steps.
  std::vector<std::vector<float>> states() {
    const TrainingState& trained = trainer().state();
    trained.pull();
    std::vector<std::vector<float>> all;
    for (const std::string& name : trained.names())
      all.emplace_back(trained.flat(name), trained.flat(name) + trained.layout().trained_count());
    for (const auto& [name, type] : trained.packed()) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(learner.store().data(name));
      all.emplace_back(bytes, bytes + type.bytes());
    }
    return all;
  }
  Net net;
  SingleShapeLearner learner;
};

std::vector<OptimizerAttrs> optimizers() {
  return {{.kind = Kind::kAdam8bit, .weight_decay = 0.01, .decoupled = true, .clip_norm = 1, .ema_decay = 0.9},
      {.kind = Kind::kMuon, .momentum = 0.95, .weight_decay = 0.01, .clip_norm = 1, .ema_decay = 0.9},
      {.kind = Kind::kAdafactor, .weight_decay = 0.01, .clip_norm = 1, .ema_decay = 0.9}};
}

std::string name_of(const OptimizerAttrs& attrs) { return enum_names(attrs.kind)[static_cast<size_t>(attrs.kind)]; }

size_t optimizer_bytes(Training& training) {
  size_t bytes = 0;
  for (const Store::Region& region : training.learner.store().regions())
    if (region.kind == MemoryKind::kOptimizer) bytes += region.bytes;
  return bytes;
}

TEST(Optimizers, EachLearnsABatchByHeart) {
  for (const OptimizerAttrs& attrs : optimizers()) {
    SCOPED_TRACE(name_of(attrs));
    Training training({.optimizer = attrs});
    const double first = training.step(0.01, 1).loss;
    double last = first;
    for (int64_t step = 2; step <= 150; ++step) last = training.step(0.01, step).loss;
    EXPECT_LT(last, 0.1 * first);
    EXPECT_TRUE(std::isfinite(training.learner.evaluate()));  // on the average
  }
}

TEST(Optimizers, EachGivesTheSameBitsForAnyNumberOfThreadsAndResumesFromACheckpoint) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "state";
  for (const OptimizerAttrs& attrs : optimizers())
    for (const int64_t micros : {1, 2}) {
      SCOPED_TRACE(name_of(attrs));
      Training one({.optimizer = attrs, .accumulate_steps = micros, .threads = 1}),
          three({.optimizer = attrs, .accumulate_steps = micros, .threads = 3});
      for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(one.step(0.01, step).loss, three.step(0.01, step).loss);
      EXPECT_EQ(one.states(), three.states());
      save_training_state(path, one.trainer(), {.step = 5}, {});
      Training resumed({.optimizer = attrs, .accumulate_steps = micros, .seed = 7});
      EXPECT_EQ(load_training_state(path, resumed.trainer()).step, 5);
      EXPECT_EQ(one.states(), resumed.states());
      for (int64_t step = 6; step <= 8; ++step) EXPECT_EQ(one.step(0.01, step).loss, resumed.step(0.01, step).loss);
      EXPECT_EQ(one.states(), resumed.states());
    }
}

TEST(Optimizers, AStepThatIsNotFiniteChangesNothing) {
  for (const OptimizerAttrs& attrs : optimizers()) {
    SCOPED_TRACE(name_of(attrs));
    Training training({.optimizer = attrs});
    for (int64_t step = 1; step <= 3; ++step) training.step(0.01, step);
    const auto before = training.states();
    training.fill(std::numeric_limits<float>::infinity());
    EXPECT_FALSE(training.step(0.01, 4).finite);
    EXPECT_EQ(training.states(), before);
  }
}

TEST(Optimizers, MomentsTakeTheBytesThatTheirKindPromises) {
  const auto bytes = [](Kind kind) {
    Training training({.optimizer = {.kind = kind}});
    return static_cast<double>(optimizer_bytes(training)) /
           static_cast<double>(training.learner.trainer().state().layout().trained_count());
  };
  EXPECT_LE(bytes(Kind::kAdam8bit), 2.1);
  EXPECT_EQ(bytes(Kind::kAdam), 8);
  const int64_t matrices = 40 * kWidth + 40 * 40, all = 40 * kWidth + 40 + 40 * 40 + 40 + 40 * kWidth + kWidth + 80;
  const int64_t factors = 40 + kWidth + 40 + 40 + 40 + kWidth, vectors = 40 + 40 + kWidth + 80;
  const double lines = 128.0 / static_cast<double>(all);  // each state begins on a cache line
  EXPECT_NEAR(bytes(Kind::kAdafactor), 4 * static_cast<double>(factors + vectors) / static_cast<double>(all), lines);
  EXPECT_NEAR(bytes(Kind::kMuon), 4 + 4 * static_cast<double>(all - matrices) / static_cast<double>(all), lines);
}

TEST(Optimizers, GroupsMayHaveThemBesideOthers) {
  const OptimizerAttrs common{.weight_decay = 0.01, .decoupled = true, .ema_decay = 0.9};
  for (const OptimizerAttrs& attrs : optimizers()) {
    SCOPED_TRACE(name_of(attrs));
    Training training({.optimizer = common},
        {{.patterns = {"second.*", "norm.*"}, .optimizer = attrs}, {.patterns = {"first.weight"}, .optimizer = attrs}});
    const double first = training.step(0.01, 1).loss;
    double last = first;
    for (int64_t step = 2; step <= 100; ++step) last = training.step(0.01, step).loss;
    EXPECT_LT(last, 0.3 * first);
  }
}

// By the formulas of training/trainer/range_update.h, in double and with plain loops.
using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

Matrix orthogonal_by_loops(Matrix x) {
  double squares = 0;
  for (const auto& row : x)
    for (const double value : row) squares += value * value;
  for (auto& row : x)
    for (double& value : row) value /= std::sqrt(squares);
  for (int times = 0; times < 5; ++times) {
    const Matrix a = product(x, transposed(x)), aa = product(a, a), ax = product(a, x), aax = product(aa, x);
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] - 4.7750 * ax[i][j] + 2.0315 * aax[i][j];
  }
  return x;
}

TEST(Muon, DirectionsAreNearlyOrthogonalWhateverTheShape) {
  for (const Shape& shape : {Shape{6, 20}, Shape{20, 6}, Shape{9, 9}, Shape{2, 3}}) {
    SCOPED_TRACE(shape.text());
    Graph graph;
    const TensorType type{DType::kF64, shape};
    graph.output("y", orthogonal(graph.input("x", type)));
    HostTensor x(type);
    Matrix plain(static_cast<size_t>(shape[0]), std::vector<double>(static_cast<size_t>(shape[1])));
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const double value = 30 * std::sin(static_cast<double>(i * i + 1));
      x.as<double>()[static_cast<size_t>(i)] = value;
      plain[static_cast<size_t>(i / shape[1])][static_cast<size_t>(i % shape[1])] = value;
    }
    const HostTensor y = interpret(graph, {{"x", x}}).outputs.at("y");
    const Matrix want = orthogonal_by_loops(plain);
    for (int64_t i = 0; i < shape.elements(); ++i)
      EXPECT_NEAR(y[i], want[static_cast<size_t>(i / shape[1])][static_cast<size_t>(i % shape[1])], 1e-9) << i;
    // The smaller product with itself is nearly the unit matrix.
    const Matrix square = shape[0] <= shape[1] ? product(want, transposed(want)) : product(transposed(want), want);
    for (size_t i = 0; i < square.size(); ++i) EXPECT_NEAR(square[i][i], 1, 0.6) << i;
  }
}

// One step by the formulas of training/trainer/range_update.h, of which the first takes the second moment as it is.
// Returns the direction of a matrix.
Matrix adafactor_direction(const Matrix& g) {
  const size_t rows = g.size(), columns = g[0].size();
  std::vector<double> r(rows), c(columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      r[i] += g[i][j] * g[i][j] / static_cast<double>(columns);
      c[j] += g[i][j] * g[i][j] / static_cast<double>(rows);
    }
  double mean = 0, squares = 0;
  for (const double value : r) mean += value / static_cast<double>(rows);
  Matrix u = g;
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      u[i][j] /= std::sqrt(r[i] * c[j] / mean);
      squares += u[i][j] * u[i][j];
    }
  const double length = std::max(1.0, std::sqrt(squares / static_cast<double>(rows * columns)));
  for (auto& row : u)
    for (double& value : row) value /= length;
  return u;
}

// The gradient of a weight of the first step.
Matrix first_gradient(const char* name, size_t rows, size_t columns) {
  Training training({.optimizer = {.kind = Kind::kSgd}});
  const std::span<float> values = training.learner.parameter(name);
  const std::vector<float> old(values.begin(), values.end());
  training.step(1, 1);
  Matrix gradient(rows, std::vector<double>(columns));
  for (size_t i = 0; i < old.size(); ++i) gradient[i / columns][i % columns] = old[i] - values[i];
  return gradient;
}

TEST(Adafactor, AStepMovesMatricesByTheFormulaAndVectorsByTheirSigns) {
  Training training({.optimizer = {.kind = Kind::kAdafactor, .weight_decay = 0.1}});
  for (const char* name : {"first.weight", "second.weight"}) {
    const std::span<float> values = training.learner.parameter(name);
    SCOPED_TRACE(name);
    Training fresh({.optimizer = {.kind = Kind::kAdafactor, .weight_decay = 0.1}});
    const std::span<float> next = fresh.learner.parameter(name);
    fresh.step(0.01, 1);
    const size_t columns = values.size() / 40;
    const Matrix direction = adafactor_direction(first_gradient(name, 40, columns));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(next[i], values[i] * (1 - 0.01 * 0.1) - 0.01 * direction[i / columns][i % columns], 2e-5) << i;
  }
  const auto bias = first_gradient("norm.bias", 1, 40)[0];
  training.step(0.01, 1);
  const std::span<float> moved = training.learner.parameter("norm.bias");
  for (size_t i = 0; i < bias.size(); ++i) EXPECT_NEAR(moved[i], bias[i] > 0 ? -0.01 : 0.01, 1e-5) << i;
}

// The first step from zero moments: u is 1 - momentum^2 times the gradient, whose length does not matter.
TEST(Muon, AStepMovesMatricesByTheFormulaAndTheRestByAdamW) {
  const OptimizerAttrs muon{.kind = Kind::kMuon, .momentum = 0.95, .weight_decay = 0.1},
      adamw{.weight_decay = 0.1, .decoupled = true};
  Training training({.optimizer = muon}), other({.optimizer = adamw});
  const auto values = [](Training& t, const char* name) {
    const auto span = t.learner.parameter(name);
    return std::vector<float>(span.begin(), span.end());
  };
  const auto before = values(training, "first.weight");
  training.step(0.01, 1);
  const Matrix direction = orthogonal_by_loops(first_gradient("first.weight", 40, kWidth));
  const auto after = values(training, "first.weight");
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_NEAR(
        after[i], before[i] * (1 - 0.01 * 0.1) - 0.01 * 0.2 * std::sqrt(40.0) * direction[i / kWidth][i % kWidth], 2e-5)
        << i;
  other.step(0.01, 1);
  for (const char* name : {"first.bias", "norm.weight", "head.weight"})
    EXPECT_EQ(values(training, name), values(other, name)) << name;
}

// The new states are computed where the old ones lie.
TEST(Optimizers, NoStateIsCopied) {
  for (const OptimizerAttrs& attrs : optimizers()) {
    SCOPED_TRACE(name_of(attrs));
    Training training({.optimizer = attrs});
    for (const auto& [name, plan] : training.trainer().plans().by_name()) EXPECT_TRUE(plan->copies.empty()) << name;
  }
}
}  // namespace
}  // namespace linnet

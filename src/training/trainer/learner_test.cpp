#include "training/trainer/learner.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"

namespace linnet {
namespace {
struct Line : Module {
  Linear fit{this, "fit", 1, 1};
};

Loss line_loss(Line& line, Trace& trace) {
  const Tensor x = trace.input("x", {DType::kF32, {4, 1}}), y = trace.input("y", {DType::kF32, {4, 1}});
  return {sum_to(square(line.fit(x) - y), {}), trace.number(4)};
}

TEST(Learner, FitsALineToItsSlopeAndOffset) {
  Line line;
  SingleShapeLearner learner(line, [&](Trace& trace) { return line_loss(line, trace); });
  learner.set<float>("x", {0, 1, 2, 3});
  learner.set<float>("y", {1, 3, 5, 7});
  for (int step = 0; step < 2000; ++step) learner.step(0.01);
  EXPECT_NEAR(learner.parameter("fit.weight")[0], 2, 1e-2);
  EXPECT_NEAR(learner.parameter("fit.bias")[0], 1, 1e-2);
  EXPECT_LT(learner.evaluate(), 1e-3);
}

TEST(Learner, WrongInputsAreNamed) {
  Line line;
  SingleShapeLearner learner(line, [&](Trace& trace) { return line_loss(line, trace); });
  EXPECT_THROW(learner.set<float>("z", {0}), Error);
  EXPECT_THROW(learner.set<float>("x", {0, 1}), Error);
  EXPECT_THROW(learner.parameter("fit.scale"), Error);
}
}  // namespace
}  // namespace linnet

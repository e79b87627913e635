// Ops of a program's own: what the harness notices, and that a learner computes with the kernel and the gradient given.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <linnet/testing.h>
#include <algorithm>

namespace {
using namespace linnet;

// weight * x row by row, and the sum of each row: two results of two operands.
OpDefinition weighted(const std::string& name) {
  OpDefinition op{.name = name};
  op.infer = [](const OpTypes& types) -> std::vector<TensorType> {
    if (types.in.size() != 2 || types.in[0].shape.rank() != 2 || types.in[1].shape != Shape{types.in[0].shape[1]})
      throw Error(ErrorKind::kShape, "expected x [N, D] and weight [D]");
    return {types.in[0], {types.in[0].dtype, {types.in[0].shape[0]}}};
  };
  op.decompose = [](const OpOperands& given) -> std::vector<Tensor> {
    const Tensor product = given.in[0] * given.in[1];
    return {product, sum(product, 1)};
  };
  op.gradient = [](const OpGradient& given) -> std::vector<Tensor> {
    const Tensor x = given.in[0], weight = given.in[1];
    Tensor all;  // of the product
    if (given.out_grad[0].defined()) all = given.out_grad[0];
    if (given.out_grad[1].defined()) {
      const Tensor rows = broadcast_to(reshape(given.out_grad[1], {x.dim(0), 1}), x.shape());
      all = all.defined() ? all + rows : rows;
    }
    return {all * weight, sum(all * x, 0)};
  };
  op.kernel = [](const OpCall& call) {
    const auto x = call.in[0].as<float>(), weight = call.in[1].as<float>();
    const auto product = call.out[0].as<float>(), sums = call.out[1].as<float>();
    const auto width = static_cast<int64_t>(weight.size());
    call.parallel(static_cast<int64_t>(sums.size()), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float total = 0;
        for (int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<size_t>(row * width + i);
          total += product[at] = x[at] * weight[static_cast<size_t>(i)];
        }
        sums[static_cast<size_t>(row)] = total;
      }
    });
  };
  return op;
}

std::vector<std::string> check(const OwnOp& op) {
  return linnet::testing::check_op({.inputs = {{.shape = {3000, 5}}, {.shape = {5}}},
      .build = [&](const std::vector<Tensor>& in) { return op.all(in[0], {in[1]}); }});
}

// Whether one of the lines begins so.
bool says(const std::vector<std::string>& lines, const std::string& begin) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.starts_with(begin); });
}

TEST(OwnOp, TheHarnessFindsNothingWrongWithASoundOne) {
  EXPECT_EQ(check(OwnOp(weighted("weighted"))), std::vector<std::string>{});
}

TEST(OwnOp, TheHarnessNoticesAWrongKernel) {
  OpDefinition wrong = weighted("wrong_kernel");
  wrong.kernel = [sound = wrong.kernel](const OpCall& call) {
    sound(call);
    call.out[1].as<float>()[0] += 100;
  };
  const std::vector<std::string> problems = check(OwnOp(std::move(wrong)));
  EXPECT_TRUE(says(problems, "float32 y1: the relative distance is "));
  EXPECT_FALSE(says(problems, "gradient"));
}

TEST(OwnOp, TheHarnessNoticesAWrongGradient) {
  OpDefinition wrong = weighted("wrong_gradient");
  wrong.gradient = [sound = wrong.gradient](const OpGradient& given) {
    std::vector<Tensor> gradients = sound(given);
    gradients[1] = gradients[1] * 1.01;
    return gradients;
  };
  const std::vector<std::string> problems = check(OwnOp(std::move(wrong)));
  EXPECT_TRUE(says(problems, "gradient of operand 1, element 0: "));
  EXPECT_FALSE(says(problems, "gradient of operand 0"));
}

TEST(OwnOp, MistakesNameTheLineAndTheOp) {
  const OwnOp op(weighted("weighted_line"));
  struct Net : Module {
    Linear layer{this, "layer", 2, 2};
  } net;
  try {
    Learner(net, [&](Tracer& t) -> Loss {
      return {sum(op(net.layer(t.input("x", {DType::kF32, {4, 2}})), {t.number(1)})), t.number(1)};
    });
    FAIL() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kShape);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("own_op_test.cpp:")) << text;
    EXPECT_NE(text.find(": weighted_line: expected x [N, D] and weight [D]"), text.npos) << text;
  }
}

// The same numbers as with the ops that the library has, but for roundings, through steps of training.
TEST(OwnOp, TrainsAsItsDecomposition) {
  const OwnOp op(weighted("weighted_trained"));
  struct Net : Module {
    Linear layer{this, "layer", 3, 4};
    Parameter weight{this, "weight", {4}, constant_init(0.5)};
  };
  std::vector<std::vector<float>> weights;
  for (const bool own : {true, false}) {
    Net net;
    Learner learner(net, [&](Tracer& t) -> Loss {
      const Tensor x = net.layer(t.input("x", {DType::kF32, {6, 3}}));
      const Tensor sums = own ? op.all(x, {net.weight})[1] : sum(x * net.weight, 1);
      return {sum(square(sums - t.input("y", {DType::kF32, {6}}))), t.number(6)};
    });
    std::vector<float> x, y;
    for (int i = 0; i < 18; ++i) x.push_back(static_cast<float>(i * 7 % 5) - 2);
    for (int i = 0; i < 6; ++i) y.push_back(static_cast<float>(i));
    learner.set("x", x);
    learner.set("y", y);
    const double before = learner.evaluate();
    for (int step = 0; step < 20; ++step) learner.step(0.01);
    EXPECT_LT(learner.evaluate(), 0.9 * before);
    const auto values = learner.parameter("weight");
    weights.emplace_back(values.begin(), values.end());
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(weights[0][i], weights[1][i], 1e-5);
}
}  // namespace

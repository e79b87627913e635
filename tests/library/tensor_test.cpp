// Functions on tensors: values and gradients of each, broadcasting, random numbers, derivatives in the graph, values of
// a step.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <linnet/testing.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace {
using namespace linnet;
namespace testing = linnet::testing;
using Tensors = std::vector<Tensor>;

// Gradients, plans and threads of a function of tensors.
void check(const std::vector<testing::OpInput>& inputs, const std::function<Tensor(const Tensors&)>& function) {
  const auto problems =
      testing::check_op({.inputs = inputs, .build = [&](const Tensors& in) -> Tensors { return {function(in)}; }});
  EXPECT_EQ(problems, std::vector<std::string>{});
}

// The values of a tensor in an evaluation graph.
Arrays values_of(const std::function<Tensor(Tracer&)>& function) {
  struct Nothing : Module {
    Parameter scale{this, "scale", {1}, constant_init(1)};
  } nothing;
  Learner learner(nothing,
      [&](Tracer& t) -> Loss {
        t.output("value", function(t));
        return {.sum = sum(nothing.scale), .count = t.number(1)};
      },
      {.training = false});
  return learner.predict(Arrays{});
}
std::vector<float> floats_of(const std::function<Tensor(Tracer&)>& function) {
  const Arrays values = values_of(function);
  const auto floats = values.get<float>("value");
  return {floats.begin(), floats.end()};
}

TEST(Tensors, BroadcastAsNumPy) {
  const std::vector<std::pair<Shape, Shape>> shapes{{{4, 1}, {1, 3}}, {{2, 1, 3}, {5, 1}}, {{2, 3, 4}, {3, 1}},
      {{2, 1, 3, 1}, {4, 3, 5}}, {{1, 3}, {2, 1, 1}}, {{3}, {4, 1, 3}}, {{1, 1, 1}, {2, 1}}};
  for (const auto& [a, b] : shapes) {
    check({{.shape = a}, {.shape = b}}, [](const Tensors& in) { return in[0] * in[1] + in[1]; });
    check({{.shape = a}, {.shape = b}}, [](const Tensors& in) { return where(greater(in[0], in[1]), in[0], in[1]); });
  }
  check({{.shape = {2, 1, 3, 1}}}, [](const Tensors& in) { return broadcast_to(in[0], {2, 4, 3, 5}); });
  check({{.shape = {3, 1}}}, [](const Tensors& in) { return broadcast_to(in[0], {2, 3, 4}); });
  EXPECT_EQ(floats_of([](Tracer&) {
    return reshape(arange(2), {2, 1}) * 10.0 + arange(3);
  }),
      (std::vector<float>{0, 1, 2, 10, 11, 12}));
  const Arrays one = values_of([](Tracer&) { return reshape(arange(2), {2, 1}) + reshape(arange(1), {1, 1, 1}); });
  EXPECT_EQ(one.type("value").shape, (Shape{1, 2, 1}));
  const Arrays three = values_of([](Tracer&) {
    return where(reshape(arange(6), {2, 3}), reshape(arange(2), {2, 1}), reshape(arange(1), {1, 1, 1}));
  });
  EXPECT_EQ(three.type("value").shape, (Shape{1, 2, 3}));
}

TEST(Tensors, APowerOfZeroIsAConstant) {
  const auto value = floats_of([](Tracer&) {
    const Tensor x = arange(3) * 0.0, y = pow(x, 0) + pow(x, 2);
    return gradient(sum(y), x);
  });
  EXPECT_EQ(value, (std::vector<float>{0, 0, 0}));  // not NaN
}

TEST(Tensors, FunctionsOfElementsHaveTheirGradients) {
  const testing::OpInput x{.shape = {3, 7}, .spread = 3}, y{.shape = {3, 7}, .spread = 3};
  check({x}, [](const Tensors& in) { return leaky_relu(in[0], 0.2); });
  check({x}, [](const Tensors& in) { return elu(in[0], 1.5); });
  check({x}, [](const Tensors& in) { return selu(in[0]); });
  check({x, y}, [](const Tensors& in) { return huber(in[0], in[1], 0.7); });
  check({x, y}, [](const Tensors& in) { return less(in[0], in[1]) * in[0] + greater_equal(in[0], in[1]) * in[1]; });
  EXPECT_EQ(floats_of([](Tracer&) { return elu(arange(2) * 200.0 - 100.0); }), (std::vector<float>{-1, 100}));
  // PyTorch's values and derivatives, also at the kink and where e^x is infinite.
  const auto selu_of_hundreds = [](bool derivative) {
    return floats_of([=](Tracer&) {
      const Tensor x = arange(3) * 100.0 - 100.0, y = selu(x);
      return derivative ? gradient(sum(y), x) : y;
    });
  };
  const std::vector<float> values = selu_of_hundreds(false), derivatives = selu_of_hundreds(true);
  const double torch_values[] = {-1.7580993408, 0, 105.0700987355},
               torch_derivatives[] = {0, 1.7580993408, 1.0507009874};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(values[i], torch_values[i], 1e-5);
    EXPECT_NEAR(derivatives[i], torch_derivatives[i], 1e-5);
  }
  EXPECT_EQ(
      floats_of([](Tracer&) { return huber(arange(4), arange(4) * 0.0, 1); }), (std::vector<float>{0, 0.5, 1.5, 2.5}));
  const auto compared = [](Tensor (*function)(At, Tensor)) {
    return floats_of([=](Tracer& t) { return function(arange(3), t.full({DType::kF32, {3}}, 1)); });
  };
  EXPECT_EQ(compared(less), (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(compared(less_equal), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(compared(greater_equal), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(compared(not_equal), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(compared(logical_and), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(
      floats_of([](Tracer&) { return logical_or(arange(3) - 1.0, arange(3) * 0.0); }), (std::vector<float>{1, 0, 1}));
}

TEST(Tensors, ReduceOverAnyAxes) {
  const std::vector<testing::OpInput> x{{.shape = {3, 4, 5}}};
  for (const std::vector<int>& axes : {std::vector<int>{0, 2}, {1}, {-1, 0}, {0, 1}, {1, 2}, {0, 1, 2}, {}})
    for (const bool keep : {false, true}) {
      check(x, [&](const Tensors& in) { return sum(in[0], axes, keep); });
      check(x, [&](const Tensors& in) { return mean(in[0], axes, keep); });
      check(x, [&](const Tensors& in) { return variance(in[0], axes, keep); });
      check(x, [&](const Tensors& in) { return max(in[0], axes, keep) + min(in[0], axes, keep); });
    }
  for (const int axis : {0, 1, 2, -3}) {
    check(x, [&](const Tensors& in) { return softmax(in[0], axis); });
    check(x, [&](const Tensors& in) { return log_softmax(in[0], axis) * in[0]; });
    check(x, [&](const Tensors& in) { return log_sum_exp(in[0], axis); });
    check(x, [&](const Tensors& in) { return cumsum(in[0], axis); });
  }
  EXPECT_EQ(floats_of([](Tracer&) {
    return sum(reshape(arange(12), {2, 3, 2}), {0, 2});
  }),
      (std::vector<float>{14, 22, 30}));
  const Arrays places = values_of([](Tracer&) { return argmax(cos(reshape(arange(6), {3, 2})), 0); });
  EXPECT_TRUE(std::ranges::equal(places.get<int32_t>("value"), std::vector<int32_t>{0, 0}));
}

TEST(Tensors, MasksPadsAndRanges) {
  check({{.shape = {2, 4, 5}}}, [](const Tensors& in) { return tril(in[0], -1); });
  check({{.shape = {2, 3}}}, [](const Tensors& in) { return pad(in[0], 1, 2, 1, 0.5); });
  check({{.shape = {2, 3, 2, 3}}}, [](const Tensors& in) { return upsample(in[0], 3); });
  EXPECT_EQ(floats_of([](Tracer& t) {
    return tril(t.full({DType::kF32, {3, 3}}, 1));
  }),
      (std::vector<float>{1, 0, 0, 1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(floats_of([](Tracer&) { return sequence_mask(arange(3, DType::kI32), 2); }),
      (std::vector<float>{0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(floats_of([](Tracer&) { return pad(arange(2), 0, 1, 2, 7); }), (std::vector<float>{7, 0, 1, 7, 7}));
  EXPECT_EQ(floats_of([](Tracer&) {
    return upsample(reshape(arange(2), {1, 1, 2, 1}));
  }),
      (std::vector<float>{0, 0, 1, 1, 0, 0, 1, 1}));
}

TEST(Tensors, ConvolutionsOfSequencesAndTheirTransposes) {
  for (const auto& [stride, padding, dilation, groups] :
      {std::array<int64_t, 4>{1, 0, 1, 1}, {2, 2, 1, 2}, {1, 3, 2, 1}})
    check({{.shape = {2, 9, 4}}, {.shape = {6, 3, 4 / groups}}},
        [stride = stride, padding = padding, dilation = dilation, groups = groups](
            const Tensors& in) { return conv1d(in[0], in[1], stride, padding, dilation, groups); });
  for (const auto& [stride, padding, more, groups] : {std::array<int64_t, 4>{1, 0, 0, 1}, {2, 1, 1, 1}, {3, 0, 2, 2}})
    check({{.shape = {2, 3, 4, 4}}, {.shape = {4, 3, 3, 6 / groups}}},
        [stride = stride, padding = padding, more = more, groups = groups](
            const Tensors& in) { return conv_transpose2d(in[0], in[1], stride, padding, more, 1, groups); });
  EXPECT_EQ(floats_of([](Tracer& t) {
    return conv_transpose2d(reshape(arange(2) + 1.0, {1, 1, 2, 1}), t.full({DType::kF32, {1, 1, 2, 1}}, 1), 2);
  }),
      (std::vector<float>{1, 1, 2, 2}));
  EXPECT_THROW(floats_of([](Tracer& t) {
    return conv_transpose2d(reshape(arange(2), {1, 1, 2, 1}), t.full({DType::kF32, {1, 1, 2, 1}}, 1), 2, 0, 2);
  }),
      Error);
}

TEST(Tensors, LayersOfConvolutionsAreTheirFunctions) {
  struct Net : Module {
    Conv1d line{this, "line", 4, 6, 3, {.padding = 1, .groups = 2}};
    ConvTranspose2d larger{this, "larger", 3, 2, 3, {.stride = 2}, 1};
    Conv2d wide{this, "wide", 3, 2, 1, {.bias = false, .width = 5, .padding_width = 2}};
  } net;
  Learner learner(net,
      [&](Tracer& t) -> Loss {
        const Tensor line = t.input("line", {DType::kF32, {2, 5, 4}});
        const Tensor image = t.input("image", {DType::kF32, {1, 3, 4, 3}});
        const Tensor zero = t.full({DType::kF32, {1}}, 0);
        t.output("line", net.line(line) - conv1d(line, net.line.weight, 1, 1, 1, 2) + zero);
        t.output("larger", net.larger(image) - conv_transpose2d(image, net.larger.weight, 2, 0, 1));
        t.output("wide", net.wide(image) - conv2d(pad(image, 2, 2, 2), net.wide.weight));
        return {.sum = sum(net.wide(image)), .count = t.number(1)};
      },
      {.training = false});
  Arrays batch;
  batch.set("line", {2, 5, 4}, std::vector<float>(40, 0.5f));
  batch.set("image", {1, 3, 4, 3}, std::vector<float>(36, 0.25f));
  const Arrays found = learner.predict(batch);
  for (const auto& [name, shape] :
      {std::pair{"line", Shape{2, 5, 6}}, {"larger", Shape{1, 8, 10, 2}}, {"wide", Shape{1, 3, 4, 2}}}) {
    EXPECT_EQ(found.type(name).shape, shape) << name;
    for (const float difference : found.get<float>(name)) EXPECT_EQ(difference, 0) << name;
  }
  EXPECT_THROW((Conv1d{&net, "wrong", 4, 4, 3, {.width = 3}}), Error);
}

TEST(Tensors, SequencesHaveModulesFunctionsAndLambdas) {
  struct Net : Module {
    Sequential all{this, "all"};
  } net;
  net.all.add(relu).add([](At x) { return x * 2.0; }).add(MaxPool{2});
  EXPECT_EQ(floats_of([&](Tracer&) { return net.all(reshape(arange(4) - 1.5, {1, 2, 2, 1})); }), std::vector<float>{3});
}

TEST(Tensors, ResizedAsPyTorchDoes) {
  const auto row = [](int64_t from, int64_t to, Interpolation how) {
    return floats_of([=](Tracer&) { return resize(reshape(arange(from), {1, 1, from, 1}), 1, to, how); });
  };
  EXPECT_EQ(row(2, 4, Interpolation::kBilinear), (std::vector<float>{0, 0.25, 0.75, 1}));
  EXPECT_EQ(row(4, 2, Interpolation::kBilinear), (std::vector<float>{0.5, 2.5}));
  EXPECT_EQ(row(3, 5, Interpolation::kNearest), (std::vector<float>{0, 0, 1, 1, 2}));
  for (const Interpolation how : {Interpolation::kBilinear, Interpolation::kNearest})
    check({{.shape = {2, 3, 4, 2}}}, [=](const Tensors& in) { return resize(in[0], 5, 3, how); });
}

TEST(Tensors, SumsOfProductsByLetters) {
  const testing::OpInput a{.shape = {2, 3, 4}}, b{.shape = {2, 4, 5}}, c{.shape = {5, 3}};
  check({a, b}, [](const Tensors& in) { return einsum("bij,bjk->bik", in); });
  check({a, b}, [](const Tensors& in) { return einsum("bij, bjk -> kb", in); });
  check({a, b, c}, [](const Tensors& in) { return einsum("bij,bjk,ki->b", in); });
  check({a}, [](const Tensors& in) { return einsum("abc->ca", in); });
  check({c, {.shape = {4}}}, [](const Tensors& in) { return einsum("ab,c->cba", in); });
  check({a, b}, [](const Tensors& in) { return einsum("...ij,...jk->...ik", in); });
  EXPECT_EQ(floats_of([](Tracer&) {  // [2, 1] and [1, 2, 3] of 0, 1, ...: the last axes that "..." stands for agree
    return einsum("...a, b...c -> c...", {reshape(arange(2), {2, 1}), reshape(arange(6), {1, 2, 3})});
  }),
      (std::vector<float>{0, 3, 0, 4, 0, 5}));
  EXPECT_EQ(floats_of([](Tracer&) {
    return einsum("ij,jk", {reshape(arange(4), {2, 2}), reshape(arange(4), {2, 2})});
  }),
      (std::vector<float>{2, 3, 6, 11}));
  for (const char* wrong :
      {"ij,jk->iz", "ij,j", "ii,jk->ik", "ij,jk->ii", "i.,jk->k", "ijk,jk->i", "...ijk,jk", "i......j,jk"})
    EXPECT_THROW(floats_of([=](Tracer&) {
      return einsum(wrong, {reshape(arange(4), {2, 2}), reshape(arange(4), {2, 2})});
    }),
        Error)
        << wrong;
}

TEST(Tensors, SortedPickedAndAddedUp) {
  check({{.shape = {3, 7}}}, [](const Tensors& in) { return sort(in[0]); });
  check({{.shape = {3, 7}}}, [](const Tensors& in) { return top_k(in[0], 3).first; });
  check({{.shape = {2, 5, 3}}, {.shape = {2, 5}, .integer = true, .low = 0, .high = 4}},
      [](const Tensors& in) { return scatter_add(in[0], in[1], 6); });
  const auto mixed = [] { return reshape((arange(6) - 2.0) * (arange(6) - 3.5), {2, 3}); };  // 7 2.5 0, -0.5 1 4.5
  EXPECT_EQ(floats_of([&](Tracer&) { return sort(mixed(), true); }), (std::vector<float>{7, 2.5f, 0, 4.5f, 1, -0.5f}));
  const Arrays order = values_of([&](Tracer&) { return top_k(mixed(), 2).second; });
  EXPECT_TRUE(std::ranges::equal(order.get<int32_t>("value"), std::vector<int32_t>{0, 1, 2, 1}));
  EXPECT_THROW(floats_of([&](Tracer&) { return top_k(mixed(), 4).first; }), Error);
}

TEST(Tensors, CrossEntropyByRowAndByClass) {
  const testing::OpInput logits{.shape = {6, 5}, .spread = 2}, ids{.shape = {6}, .integer = true, .low = -1, .high = 5};
  for (const double smoothing : {0.0, 0.1}) {
    check({logits, ids}, [&](const Tensors& in) { return cross_entropy(in[0], in[1], smoothing); });
    check({logits, ids}, [&](const Tensors& in) {
      return sum(cross_entropy(in[0], in[1], smoothing)) - cross_entropy_sum(in[0], in[1], smoothing) + in[0];
    });
  }
  check(
      {logits, ids, {.shape = {5}}}, [](const Tensors& in) { return weighted_cross_entropy_sum(in[0], in[1], in[2]); });
  const auto rows = floats_of([](Tracer&) {
    return cross_entropy(reshape(arange(4), {2, 2}), arange(2, DType::kI32));
  });
  EXPECT_NEAR(rows[0], std::log(1 + std::exp(1)), 1e-6);
  EXPECT_NEAR(rows[1], std::log(1 + std::exp(-1)), 1e-6);
}

// softmax(q k^T / sqrt(D)) v, head by head.
TEST(Tensors, AttentionIsAFunction) {
  const testing::OpInput q{.shape = {2, 3, 8}}, k{.shape = {2, 3, 4}}, v{.shape = {2, 3, 4}};
  check({q, k, v}, [](const Tensors& in) { return attention(in[0], in[1], in[2], 2, {.causal = true}); });
  const auto difference = floats_of([](Tracer&) {
    const Tensor keys = reshape(cos(arange(24)), {2, 3, 4}), queries = reshape(sin(arange(48)), {2, 3, 8});
    Tensors heads;
    for (const Tensor& head : split_evenly(queries, 2, 2))
      heads.push_back(matmul(softmax(matmul(head, keys, false, true) * 0.5), keys));
    return attention(queries, keys, keys, 2) - concat(heads, 2);
  });
  for (const float value : difference) EXPECT_NEAR(value, 0, 1e-6);
}

TEST(Tensors, RandomNumbersFollowFromSeedAndStep) {
  struct Net : Module {
    Linear layer{this, "layer", 1, 1};
  };
  const auto drawn = [](uint64_t seed, int steps) {
    Net net;
    Learner learner(net,
        [&](Tracer& t) -> Loss {
          const Tensor uniform = random_uniform({1000}, -1, 3), normal = random_normal({4000});
          t.output("uniform", uniform, {.training = true}), t.output("normal", normal, {.training = true});
          return {.sum = sum(net.layer(t.input("x", {DType::kF32, {1, 1}}))) + sum(uniform) + sum(normal),
              .count = t.number(1)};
        },
        {.seed = seed});
    learner.set<float>("x", {1});
    for (int i = 0; i < steps; ++i) learner.step(0);
    const auto uniform = learner.output("uniform"), normal = learner.output("normal");
    std::vector<float> all(uniform.begin(), uniform.end());
    all.insert(all.end(), normal.begin(), normal.end());
    return all;
  };
  const std::vector<float> first = drawn(1, 1);
  EXPECT_EQ(first, drawn(1, 1));
  EXPECT_NE(first, drawn(1, 2));
  EXPECT_NE(first, drawn(2, 1));
  double sum = 0, squares = 0;
  for (size_t i = 1000; i < first.size(); ++i) sum += first[i], squares += first[i] * first[i];
  EXPECT_NEAR(sum / 4000, 0, 0.08);  // five standard deviations
  EXPECT_NEAR(squares / 4000, 1, 0.12);
  const auto [low, high] = std::minmax_element(first.begin(), first.begin() + 1000);
  EXPECT_TRUE(*low >= -1 && *low < -0.9 && *high < 3 && *high > 2.9);
}

TEST(Step, LeavesTheValuesThatTheLossNames) {
  struct Net : Module {
    Linear layer{this, "layer", 2, 1};
  } net;
  Learner learner(net,
      [&](Tracer& t) -> Loss {
        const Tensor y = net.layer(t.input("x", {DType::kF32, {3, 2}}));
        t.output("y", y, {.training = true}), t.output("evaluated", y);
        return {.sum = sum(square(y)), .count = t.sample_count()};
      },
      {.optimizer = Sgd{}});
  learner.set<float>("x", {1, 2, 3, 4, 5, 6});
  const double loss = learner.step(0.01).loss;
  double squares = 0;
  for (const float y : learner.output("y")) squares += y * y;
  EXPECT_NEAR(squares / 3, loss, 1e-6 * loss);
  EXPECT_THROW((void)learner.output("evaluated"), Error);
  learner.evaluate();
  EXPECT_EQ(learner.output("evaluated").size(), 3u);
}

// u'' = -u with u(0) = 0, u'(0) = 1 is the sine: trained on the equation alone, through second derivatives.
TEST(Gradient, APinnLearnsAnEquation) {
  struct Net : Module {
    Linear a{this, "a", 1, 16}, b{this, "b", 16, 16}, c{this, "c", 16, 1};
    Tensor operator()(Tensor x) { return c(tanh(b(tanh(a(x))))); }
  } net;
  Learner learner(net, [&](Tracer& t) -> Loss {
    const Tensor x = t.input("x", {DType::kF32, {32, 1}});
    const Tensor u = x + x * x * net(x);  // fits the beginning
    const Tensor du = gradient(sum(u), x), ddu = gradient(sum(du), x);
    t.output("u", u), t.output("du", du);
    return squared_error_loss(t, ddu, -u);
  });
  std::vector<float> x(32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 16;
  learner.set("x", x);
  for (int step = 0; step < 600; ++step) learner.step(0.01);
  learner.evaluate();
  const auto u = learner.output("u"), du = learner.output("du");
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(u[i], std::sin(x[i]), 0.01) << x[i];
    EXPECT_NEAR(du[i], std::cos(x[i]), 0.02) << x[i];
  }
}

TEST(Gradient, OfParametersAndItsOwnGradient) {
  check({{.shape = {3, 4}}, {.shape = {4, 2}}}, [](const Tensors& in) {
    const Tensor y = sum(exp(tanh(matmul(in[0], in[1])) * 0.5));
    return square(gradient(y, in[0])) + 0.0 * in[0];
  });
  check({{.shape = {1, 4, 5, 2}}, {.shape = {3, 3, 3, 2}}}, [](const Tensors& in) {
    const Tensor y = sum(square(tanh(conv2d(in[0], in[1], 2, 1))));
    return square(gradient(y, in[0])) + sum(square(gradient(y, in[1])));
  });
  struct Net : Module {
    Parameter w{this, "w", {3}, values_init({1, 2, 3})};
  } net;
  Learner learner(net,
      [&](Tracer& t) -> Loss {
        const Tensor cubes = sum(net.w * square(net.w));
        const Tensors slopes = gradients(cubes, {net.w, t.input("unused", {DType::kF32, {2}})});
        t.output("slope", slopes[0]), t.output("nothing", slopes[1]);
        return {.sum = sum(slopes[0]), .count = t.number(1)};  // 3 w^2, of which the gradient is 6 w
      },
      {.optimizer = Sgd{}});
  learner.set<float>("unused", {1, 2});
  learner.step(0);
  EXPECT_EQ(learner.gradient("w"), (std::vector<float>{6, 12, 18}));
  learner.evaluate();
  EXPECT_TRUE(std::ranges::equal(learner.output("slope"), std::vector<float>{3, 12, 27}));
  EXPECT_TRUE(std::ranges::equal(learner.output("nothing"), std::vector<float>{0, 0}));
}

TEST(Gradient, OfAnOpWithoutSecondDerivativesNamesIt) {
  struct Net : Module {
    LayerNorm norm{this, "norm", 4};
  } net;
  try {
    Learner(net, [&](Tracer& t) -> Loss {
      const Tensor x = t.input("x", {DType::kF32, {2, 4}});
      return {.sum = sum(square(gradient(sum(square(net.norm(x))), x))), .count = t.number(1)};
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer_norm_grad"), std::string::npos) << error.what();
  }
}

// Rows that only pad the last batch count in no loss and no metric.
TEST(Padding, CountsInNoLoss) {
  struct Net : Module {
    Parameter shift{this, "shift", {1}, constant_init(1)};
  } net;
  Dataset data;
  std::vector<float> x(20);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  data.add("x", {1}, x);
  Loader loader(data, {.batch = 16});
  using Made = std::function<Loss(Tracer&, Tensor, Tensor)>;
  const double logistic = [&] {
    double all = 0;
    for (const float value : x) all += std::log1p(std::exp(-static_cast<double>(value) - 1)) + value + 1;
    return all / 20;
  }();
  const std::vector<std::pair<Made, double>> losses{
      {[](Tracer& t, Tensor a, Tensor b) { return squared_error_loss(t, a, b); }, 1},
      {[](Tracer& t, Tensor a, Tensor b) { return absolute_error_loss(t, a, b); }, 1},
      {[](Tracer& t, Tensor a, Tensor b) { return huber_loss(t, a, b, 0.5); }, 0.375},
      {[](Tracer& t, Tensor a, Tensor b) { return binary_cross_entropy_loss(t, a, b * 0.0); }, logistic}};
  for (const auto& [made, wanted] : losses) {
    Learner learner(net, [&net, &made = made](Tracer& t) { return made(t, t.input("x") + net.shift, t.input("x")); },
        loader.shapes(), {});
    const Evaluation evaluation = learner.evaluate(loader);
    EXPECT_EQ(evaluation.count, 20);
    EXPECT_NEAR(evaluation.loss, wanted, 1e-6 * wanted);
    loader.seek({0, 1});
    EXPECT_EQ(learner.step(loader.next(), 0).count, 4);
  }
}

// Labels that the count does not depend on leave padding rows in.
TEST(Padding, IsKnownByTheCountAlone) {
  struct Net : Module {
    Linear line{this, "line", 1, 1};
  } net;
  Dataset data;
  data.add("x", {1}, std::vector<float>(6, 1));
  data.add("labels", Shape{}, std::vector<int32_t>(6, 1));
  Loader loader(data, {.batch = 4});
  const auto evaluated = [&](bool counts_labels) {
    Learner learner(net,
        [&](Tracer& trace) -> Loss {
          const Tensor labels = trace.input("labels"), y = net.line(trace.input("x"));
          return {.sum = sum(y * reshape(cast(labels, DType::kF32) + 1.0, {4, 1})),  // 0 where the label is -1
              .count = counts_labels ? count_targets(labels) : trace.number(4)};
        },
        loader.shapes(), {});
    return learner.evaluate(loader).count;
  };
  EXPECT_EQ(evaluated(true), 6);
  EXPECT_THROW(evaluated(false), Error);
}

// What a loss reads as targets is a label, whatever it is called.
TEST(Padding, LabelsOfAnyNameAreLeftOut) {
  struct Net : Module {
    Linear line{this, "line", 1, 3};
  } net;
  Dataset data;
  data.add("x", {1}, std::vector<float>{1, 2, 3, 4, 5, 6});
  data.add("y", Shape{}, std::vector<int32_t>{0, 1, 2, 0, 1, 2});
  using Made = std::function<Loss(Tensor logits, Tensor y)>;
  const std::vector<Made> losses{[](Tensor logits, Tensor y) { return cross_entropy_loss(logits, y); },
      [](Tensor logits, Tensor y) -> Loss {
        return {.sum = sum(cross_entropy(logits, reshape(y, y.shape()))), .count = count_targets(y)};
      }};
  for (const Made& made : losses) {
    const auto evaluated = [&](int64_t rows) {
      Loader loader(data, {.batch = rows});
      Learner learner(net, [&](Tracer& t) { return made(net.line(t.input("x")), t.input("y")); }, loader.shapes(), {});
      return learner.evaluate(loader);
    };
    EXPECT_EQ(evaluated(4).count, 6);
    EXPECT_NEAR(evaluated(4).loss, evaluated(6).loss, 1e-6);
  }
}

TEST(Padding, ALossThatItChangesIsRefusedBeforeAStep) {
  struct Net : Module {
    Linear line{this, "line", 1, 3};
    Embedding words{this, "words", 3, 3};
  } net;
  Dataset data;
  data.add("x", {1}, std::vector<float>{1, 2, 3, 4, 5, 6});
  data.add("y", Shape{}, std::vector<int32_t>{0, 1, 2, 0, 1, 2});
  data.add("byte", Shape{}, std::vector<uint8_t>{0, 1, 2, 0, 1, 2});
  data.add("labels", Shape{}, std::vector<int32_t>{0, 1, 2, 0, 1, 2});
  using Made = std::function<Loss(Tracer&, Tensor logits, Tensor y)>;
  const auto run = [&](const Made& made, int64_t rows, int64_t accumulate) {
    Loader loader(data, {.batch = rows});
    Learner learner(net, [&](Tracer& t) { return made(t, net.line(t.input("x")), t.input("y")); }, loader.shapes(),
        {.accumulate = accumulate});
    if (rows == 4) {
      loader.seek({0, 1});
      try {
        learner.step(std::vector<Arrays>(static_cast<size_t>(accumulate), loader.next()), 0);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("depends on those that only pad it"), std::string::npos);
        EXPECT_EQ(learner.steps(), 0);
        EXPECT_THROW(learner.evaluate(loader), Error);
        throw;
      }
    }
    return learner.evaluate(loader);
  };
  const std::vector<Made> refused{[](Tracer&, Tensor p, Tensor y) {
                                    return cross_entropy_loss(concat({p, p}, 0), concat({y, y}, 0));
                                  },
      [](Tracer& t, Tensor p, Tensor) { return cross_entropy_loss(p, cast(t.input("byte"), DType::kI32)); },
      [](Tracer& t, Tensor p, Tensor y) -> Loss { return {.sum = mean(cross_entropy(p, y)), .count = t.number(1)}; },
      [](Tracer& t, Tensor p, Tensor) -> Loss { return {.sum = sum(square(p)), .count = t.sample_count()}; }};
  for (const Made& made : refused)
    for (const int64_t accumulate : {1, 2}) EXPECT_THROW(run(made, 4, accumulate), Error);
  const std::vector<Made> right{
      [&](Tracer&, Tensor p, Tensor y) -> Loss {
        return {.sum = cross_entropy_sum(p, y) + sum(square(net.line.weight)) * 0.0, .count = count_targets(y)};
      },
      [&](Tracer& t, Tensor p, Tensor y) {
        const Tensor ids = t.input("labels");  // a label by its name, and zero where an embedding reads padding
        return cross_entropy_loss(p + net.words(ids), y);
      }};
  for (const Made& made : right) EXPECT_NEAR(run(made, 4, 1).loss, run(made, 6, 1).loss, 1e-6);
}

// Ids of an embedding cannot be -1: as targets too they would count.
TEST(Padding, IdsThatAreCountedAsTargetsAreRefused) {
  struct Net : Module {
    Embedding words{this, "words", 5, 5};
  } net;
  Dataset data;
  data.add("ids", {2}, std::vector<int32_t>(12, 1));
  Loader loader(data, {.batch = 4});
  const auto evaluated = [&](bool masked) {
    Learner learner(net,
        [&](Tracer& t) -> Loss {
          const Tensor ids = t.input("ids"), losses = cross_entropy(net.words(ids), ids);
          if (!masked) return {.sum = sum(losses), .count = count_targets(ids)};
          return {.sum = sum(losses * reshape(t.row_mask(), {4, 1})), .count = t.sample_count() * 2.0};
        },
        loader.shapes(), {});
    return learner.evaluate(loader).count;
  };
  EXPECT_EQ(evaluated(true), 12);
  EXPECT_THROW(evaluated(false), Error);
}

// A learner that only runs a model needs no loss.
TEST(Outputs, NeedNoLossWithoutTraining) {
  struct Net : Module {
    Parameter shift{this, "shift", {2}, values_init({1, 2})};
  } net;
  const auto outputs = [&](Tracer& t) -> Loss {
    t.output("y", t.input("x", {DType::kF32, {2}}) + net.shift);
    return {};
  };
  Learner learner(net, outputs, {.training = false});
  learner.set<float>("x", {10, 20});
  EXPECT_EQ(learner.evaluate(), 0);
  EXPECT_TRUE(std::ranges::equal(learner.output("y"), std::vector<float>{11, 22}));
  Arrays batch;
  batch.set<float>("x", {2}, {1, 1});
  EXPECT_TRUE(std::ranges::equal(learner.predict(batch).get<float>("y"), std::vector<float>{2, 3}));
  EXPECT_THROW(Learner(net, outputs), Error);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One row through one unit, position by position.
TEST(Recurrent, LayersComputeWhatPyTorchDoes) {
  const std::vector<float> x{0.5, -1, 2}, ih{0.3f, -0.2f, 0.7f, 0.4f}, hh{0.1f, 0.6f, -0.5f, 0.2f},
      b1{0.1f, 0.2f, 0.3f, 0.4f}, b2{-0.1f, 0.3f, 0.05f, 0.2f};
  const auto run = [&]<class Layer>(std::type_identity<Layer>, size_t gates) {
    struct Net : Module {
      Layer layer{this, "layer", 1, 1};
    } net;
    Learner learner(net, [&](Tracer& t) -> Loss {
      RecurrentState state;
      const Tensor y = net.layer(t.input("x", {DType::kF32, {1, 3, 1}}), &state);
      t.output("y", y), t.output("last", state.hidden);
      return {.sum = sum(square(y)), .count = t.number(1)};
    });
    const auto fill = [&](const char* name, const std::vector<float>& values) {
      std::copy_n(values.begin(), gates, learner.parameter(std::string("layer.") + name).begin());
    };
    fill("weight_ih_l0", ih), fill("weight_hh_l0", hh), fill("bias_ih_l0", b1), fill("bias_hh_l0", b2);
    learner.push();
    learner.set("x", x);
    learner.evaluate();
    const auto y = learner.output("y");
    EXPECT_EQ(learner.output("last")[0], y[2]);
    std::vector<float> all(y.begin(), y.end());
    EXPECT_TRUE(learner.step(0.1).finite);
    return all;
  };
  const auto gate = [&](size_t i, double input, double h) { return ih[i] * input + b1[i] + hh[i] * h + b2[i]; };
  const std::vector<float> lstm = run(std::type_identity<Lstm>{}, 4), gru = run(std::type_identity<Gru>{}, 3);
  double h = 0, c = 0, g = 0;
  for (size_t t = 0; t < 3; ++t) {
    const double input = x[t];
    c = logistic(gate(1, input, h)) * c + logistic(gate(0, input, h)) * std::tanh(gate(2, input, h));
    h = logistic(gate(3, input, h)) * std::tanh(c);
    EXPECT_NEAR(lstm[t], h, 1e-6);
    const double r = logistic(gate(0, input, g)), z = logistic(gate(1, input, g));
    const double n = std::tanh(ih[2] * input + b1[2] + r * (hh[2] * g + b2[2]));
    g = (1 - z) * n + z * g;
    EXPECT_NEAR(gru[t], g, 1e-6);
  }
}

TEST(Gradient, OfTheAbsoluteValueIsZeroAtZero) {
  const std::vector<float> found = floats_of([](Tracer&) {
    const Tensor x = arange(3) - 1.0;
    return gradient(sum(abs(x)), x);
  });
  EXPECT_EQ(found, (std::vector<float>{-1, 0, 1}));
}

TEST(Arrays, TakeIntegersAndBooleansOfOtherPrograms) {
  struct Net : Module {
    Linear out{this, "out", 2, 3};
  } net;
  Learner learner(net,
      [&](Tracer& t) -> Loss {
        const Tensor logits = net.out(t.input("x", {DType::kF32, {4, 2}})),
                     labels = t.input("label", {DType::kI32, {4}});
        t.output("kept", cast(t.input("keep", {DType::kU8, {4}}), DType::kF32));
        t.output("labels", labels);
        return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
      },
      {.training = false});
  Arrays batch;
  batch.set<float>("x", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  batch.set<int64_t>("label", {4}, {2, -1, 0, 1}).set("keep", {4}, std::vector<bool>{true, false, true, true});
  EXPECT_EQ(batch.type("label"), (TensorType{DType::kI32, {4}}));
  const Arrays values = learner.predict(batch);
  EXPECT_TRUE(std::ranges::equal(values.get<float>("kept"), std::array<float, 4>{1, 0, 1, 1}));
  EXPECT_TRUE(std::ranges::equal(values.get<int32_t>("labels"), std::array<int32_t, 4>{2, -1, 0, 1}));

  Dataset data;
  data.add("label", {}, std::vector<int64_t>{0, 1, 2}).add("keep", {}, std::vector<bool>{true, false, true});
  EXPECT_EQ(data.size(), 3);
}
}  // namespace

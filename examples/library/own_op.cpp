// An op of the program's own: snake(x) = x + sin(a x)^2 / a, an activation for periodic functions (Ziyin, Hartwig &
// Ueda 2020). The program checks it with the library's harness and fits a wave with it, also where it has seen no data.
#include <linnet/linnet.h>
#include <linnet/testing.h>
#include <cmath>
#include <cstdio>
using namespace linnet;

const OwnOp kSnake({
    .name = "snake",
    .infer = [](const OpTypes& types) -> std::vector<TensorType> {
      if (types.in.size() != 1 || !is_float(types.in[0].dtype) || types.numbers.size() != 1)
        throw Error(ErrorKind::kShape, "expected one floating-point operand and one number");
      return {types.in[0]};
    },
    .decompose = [](const OpOperands& op) -> std::vector<Tensor> {
      const Tensor x = op.in[0];
      return {x + square(sin(x * op.numbers[0])) / op.numbers[0]};
    },
    // d/dx = 1 + sin(2 a x)
    .gradient = [](const OpGradient& op) -> std::vector<Tensor> {
      return {op.out_grad[0] * (sin(op.in[0] * (2 * op.numbers[0])) + 1.0)};
    },
    .kernel =
        [](const OpCall& op) {
          const auto x = op.in[0].as<float>(), y = op.out[0].as<float>();
          const auto a = static_cast<float>(op.numbers[0]);
          op.parallel(op.in[0].type.shape.elements(), [&](int64_t begin, int64_t end) {
            for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
              const float sine = std::sin(a * x[i]);
              y[i] = x[i] + sine * sine / a;
            }
          });
        },
});

struct Net : Module {
  Linear first{this, "first", 1, 32}, second{this, "second", 32, 1};
  Tensor operator()(Tensor x) { return second(kSnake(first(x), {}, {6.0})); }
};

int main() {
  const auto problems = testing::check_op({
      .inputs = {{.shape = {3, 700}}},
      .build = [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {kSnake(in[0], {}, {1.5})}; },
  });
  for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
  if (!problems.empty()) return 1;

  // One period and a half of sin(6 x) around 0; then it is asked on both sides of that.
  std::vector<float> x, y;
  for (int i = 0; i < 64; ++i) {
    x.push_back(static_cast<float>(i) / 40 - 0.8f);
    y.push_back(std::sin(6 * x.back()));
  }
  Net net;
  Learner learner(net,
      [&](Tracer& trace) -> Loss {
        const Tensor out = net(trace.input("x"));
        trace.output("y", out);
        return {.sum = sum(square(out - trace.input("target"))), .count = trace.number(64)};
      },
      {{{"x", {DType::kF32, {64, 1}}}, {"target", {DType::kF32, {64, 1}}}}});
  Arrays batch;
  batch.set("x", {64, 1}, x).set("target", {64, 1}, y);
  StepResult result;
  for (int step = 0; step < 2000; ++step) result = learner.step(batch, 0.01 * (1 - step / 2000.0));

  Arrays beyond;
  beyond.set<float>("x", {2, 1}, {-1.0f, 1.0f});
  const Arrays answer = learner.predict(beyond);
  const auto got = answer.get<float>("y");
  std::printf("mean squared error %.1e; at -1: %.2f, at 1: %.2f (sin(6) is %.2f)\n", result.loss, got[0], got[1],
      std::sin(6.0));
  return result.loss < 1e-3 ? 0 : 1;
}

// A physics-informed network (Raissi et al. 2019) solves the damped oscillator u'' + 2 d u' + w^2 u = 0, u(0) = 1,
// u'(0) = 0. It sees no values of the solution, only the equation, through second derivatives by its input.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
using namespace linnet;

constexpr int64_t kRows = 64;
constexpr double kDamping = 0.5, kFrequency = 2, kEnd = 3;

struct Net : Module {
  Linear a{this, "a", 1, 32}, b{this, "b", 32, 32}, c{this, "c", 32, 1};
  Tensor operator()(Tensor t) { return c(tanh(b(tanh(a(t))))); }
};

int main() {
  Net net;
  Learner learner(net, [&](Tracer& trace) -> Loss {
    const Tensor t = trace.input("t", {DType::kF32, {kRows, 1}});
    const Tensor u = 1.0 + square(t) * net(t);  // has the right beginning whatever the network gives
    const Tensor du = gradient(sum(u), t), ddu = gradient(sum(du), t);
    trace.output("u", u);
    return squared_error_loss(trace, ddu + 2 * kDamping * du + kFrequency * kFrequency * u, trace.full(u.type(), 0));
  });
  std::vector<float> t(kRows);
  for (size_t i = 0; i < t.size(); ++i) t[i] = static_cast<float>(kEnd * static_cast<double>(i) / (kRows - 1));
  learner.set("t", t);
  constexpr int kSteps = 20000;
  const Schedule rate{.kind = Schedule::Kind::kCosine, .peak = 5e-3, .max_steps = kSteps};
  for (int step = 1; step <= kSteps; ++step) learner.step(learning_rate(rate, step));

  const double residual = learner.evaluate();
  const auto u = learner.output("u");
  const double w = std::sqrt(kFrequency * kFrequency - kDamping * kDamping);
  double worst = 0;
  for (size_t i = 0; i < t.size(); ++i) {
    const double x = static_cast<double>(t[i]);
    const double exact = std::exp(-kDamping * x) * (std::cos(w * x) + kDamping / w * std::sin(w * x));
    worst = std::max(worst, std::abs(static_cast<double>(u[i]) - exact));
  }
  std::printf("mean squared residual %.1e, largest error of u %.1e\n", residual, worst);
  return worst < 0.01 ? 0 : 1;
}

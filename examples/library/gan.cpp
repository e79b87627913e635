// A generative adversarial network (Goodfellow et al. 2014) learns points on a circle: two losses over one module, each
// with an optimizer of its own. The generator's learner trains the weights that the critic's learner has.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 128, kNoise = 4;

struct Mlp : Module {
  Mlp(Module* parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), a{this, "a", in, 64}, b{this, "b", 64, 64}, c{this, "c", 64, out} {}
  Tensor operator()(Tensor x) { return c(leaky_relu(b(leaky_relu(a(x), 0.2)), 0.2)); }
  Linear a, b, c;
};

struct Gan : Module {
  Mlp generator{this, "generator", kNoise, 2}, critic{this, "critic", 2, 1};
  Tensor made() { return generator(random_normal({kRows, kNoise})); }
};

int main() {
  Gan gan;
  const Optimizer adam = Adam{.beta1 = 0.5, .beta2 = 0.9};
  Learner critic(gan,
      [&](Tracer& trace) -> Loss {
        const Tensor real = gan.critic(trace.input("points", {DType::kF32, {kRows, 2}}));
        const Tensor made = gan.critic(gan.made());
        trace.output("made", gan.made());
        return {.sum = sum(softplus(-real)) + sum(softplus(made)), .count = trace.number(kRows)};
      },
      {.optimizer = adam, .groups = {{.patterns = {"generator.*"}, .frozen = true}}});
  Learner generator(gan,
      [&](Tracer& trace) -> Loss {
        return {.sum = sum(softplus(-gan.critic(gan.made()))), .count = trace.number(kRows)};
      },
      {.optimizer = adam, .groups = {{.patterns = {"critic.*"}, .frozen = true}}, .weights = &critic});

  std::mt19937 random(1);
  std::uniform_real_distribution<float> angle(0, 6.2831853f);
  std::vector<float> points(2 * kRows);
  for (int step = 0; step < 3000; ++step) {
    for (size_t i = 0; i < points.size(); i += 2) {
      const float at = angle(random);
      points[i] = std::cos(at), points[i + 1] = std::sin(at);
    }
    critic.set("points", points);
    critic.step(1e-3);
    generator.step(1e-3);
  }
  critic.evaluate();
  const auto made = critic.output("made");
  double off = 0;
  for (size_t i = 0; i < made.size(); i += 2) off += std::abs(std::hypot(made[i], made[i + 1]) - 1) / kRows;
  std::printf("points are %.3f off the circle on average; %zu + %zu bytes\n", off, critic.memory_bytes(),
      generator.memory_bytes());
  return off < 0.15 ? 0 : 1;
}

// A variational autoencoder (Kingma & Welling 2014) of points near a circle. Its decoder then makes new points from
// noise: they must lie near the circle, and on all sides of it.
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 256, kLatent = 2, kWidth = 64;
constexpr double kNoise = 0.1;  // standard deviation of the points around what the decoder gives

struct Vae : Module {
  Linear encoder1{this, "encoder1", 2, kWidth}, encoder2{this, "encoder2", kWidth, 2 * kLatent};
  Linear decoder1{this, "decoder1", kLatent, kWidth}, decoder2{this, "decoder2", kWidth, kWidth},
      decoder3{this, "decoder3", kWidth, 2};
  Tensor decode(Tensor z) { return decoder3(relu(decoder2(relu(decoder1(z))))); }
};

int main() {
  Vae vae;
  Learner learner(vae, [&](Tracer& trace) -> Loss {
    const Tensor x = trace.input("points", {DType::kF32, {kRows, 2}});
    const std::vector<Tensor> code = split_evenly(vae.encoder2(relu(vae.encoder1(x))), 1, 2);
    const Tensor mean = code[0], log_variance = code[1];
    const Tensor z = mean + exp(log_variance * 0.5) * random_normal({kRows, kLatent});
    // The negative evidence lower bound, without the constant of the normal distribution.
    const Tensor error = sum(square(x - vae.decode(z))) / (2 * kNoise * kNoise);
    const Tensor divergence = 0.5 * sum(square(mean) + exp(log_variance) - log_variance - 1.0);
    trace.output("made", vae.decode(random_normal({kRows, kLatent})));
    return {.sum = error + divergence, .count = trace.number(kRows)};
  });

  std::mt19937 random(1);
  std::uniform_real_distribution<float> angle(0, 2 * std::numbers::pi_v<float>);
  std::normal_distribution<float> noise(0, 0.02f);
  std::vector<float> points(2 * kRows);
  for (int step = 0; step < 8000; ++step) {
    for (size_t i = 0; i < points.size(); i += 2) {
      const float at = angle(random);
      points[i] = std::cos(at) + noise(random), points[i + 1] = std::sin(at) + noise(random);
    }
    learner.set("points", points);
    learner.step(step < 6000 ? 2e-3 : 2e-4);
  }

  const double loss = learner.evaluate();
  const auto made = learner.output("made");
  double off = 0;
  int sides[4] = {};
  for (size_t i = 0; i < made.size(); i += 2) {
    off += std::abs(std::hypot(made[i], made[i + 1]) - 1) / kRows;
    ++sides[(made[i] > 0) + 2 * (made[i + 1] > 0)];
  }
  const int least = std::min({sides[0], sides[1], sides[2], sides[3]});
  std::printf("bound %.2f; made points are %.3f off the circle on average, %d of %d on the emptiest quarter\n", loss,
      off, least, static_cast<int>(kRows));
  return off < 0.15 && least > kRows / 10 ? 0 : 1;
}

// Contrastive learning with InfoNCE (van den Oord et al. 2018; Chen et al. 2020): two views of a signal, shifted and
// noisy each in its own way, get embeddings that are closer to each other than to those of all other signals.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 128, kLength = 64, kWidth = 32;
constexpr double kTemperature = 0.1;

struct Encoder : Module {
  Conv1d conv1{this, "conv1", 1, 32, 7, {.stride = 2, .padding = 3}};
  Conv1d conv2{this, "conv2", 32, 64, 5, {.stride = 2, .padding = 2}};
  Linear hidden{this, "hidden", 64, 64, he_normal()}, out{this, "out", 64, kWidth};
  // Signals [N, length, 1] -> embeddings [N, kWidth] of length 1.
  Tensor operator()(Tensor x) {
    const Tensor y = out(relu(hidden(mean(relu(conv2(relu(conv1(x)))), 1))));
    return y * rsqrt(sum(square(y), {1}, /*keep=*/true) + 1e-12);
  }
};

using Signal = std::vector<float>;

// A periodic signal of three waves.
Signal draw(std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0, 1);
  Signal signal(kLength);
  for (int wave = 0; wave < 3; ++wave) {
    const float turns = static_cast<float>(1 + random() % 12), phase = 6.2831853f * uniform(random);
    const float height = 0.3f + uniform(random);
    for (size_t i = 0; i < signal.size(); ++i)
      signal[i] += height * std::sin(6.2831853f * turns * static_cast<float>(i) / kLength + phase);
  }
  return signal;
}

// Appends a view: the signal shifted by any number of positions, with noise.
void add_view(const Signal& signal, std::mt19937& random, std::vector<float>& views) {
  std::normal_distribution<float> noise(0, 0.2f);
  const size_t shift = random() % kLength;
  for (size_t i = 0; i < signal.size(); ++i) views.push_back(signal[(i + shift) % kLength] + noise(random));
}

// The share of rows of a [kRows, width] whose largest product with a row of b is that of the same number.
double retrieved(std::span<const float> a, std::span<const float> b) {
  const size_t width = a.size() / kRows;
  int found = 0;
  for (size_t i = 0; i < kRows; ++i) {
    std::vector<float> products(kRows);
    for (size_t k = 0; k < kRows; ++k)
      for (size_t j = 0; j < width; ++j) products[k] += a[i * width + j] * b[k * width + j];
    found += top_k(products, 1)[0] == static_cast<int32_t>(i);
  }
  return static_cast<double>(found) / kRows;
}

int main() {
  Encoder encoder;
  Learner learner(encoder, [&](Tracer& trace) -> Loss {
    const TensorType views{DType::kF32, {kRows, kLength, 1}};
    const Tensor a = encoder(trace.input("a", views)), b = encoder(trace.input("b", views));
    trace.output("a", a), trace.output("b", b);
    const Tensor similar = matmul(a, b, false, true) / kTemperature, numbers = arange(kRows, DType::kI32);
    return {.sum = (cross_entropy_sum(similar, numbers) + cross_entropy_sum(permute(similar, {1, 0}), numbers)) * 0.5,
        .count = trace.number(kRows)};
  });
  std::mt19937 random(1);
  std::vector<float> a, b;
  const auto fill = [&] {
    a.clear(), b.clear();
    for (int64_t row = 0; row < kRows; ++row) {
      const Signal signal = draw(random);
      add_view(signal, random, a), add_view(signal, random, b);
    }
    learner.set("a", a), learner.set("b", b);
  };
  for (int step = 0; step < 1000; ++step) fill(), learner.step(2e-3);
  fill();  // signals that it has not seen
  learner.evaluate();
  const double found = retrieved(learner.output("a"), learner.output("b"));
  std::printf("the other view is the nearest of %d for %.1f%%, by the signals themselves for %.1f%%\n",
      static_cast<int>(kRows), 100 * found, 100 * retrieved(a, b));
  return found > 0.85 ? 0 : 1;
}

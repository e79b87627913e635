// examples/library/info_nce.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <random>

constexpr int64_t kRows = 128, kLength = 64, kWidth = 32;
constexpr double kTemperature = 0.1;

struct EncoderImpl : torch::nn::Module {
  torch::nn::Conv1d conv1{torch::nn::Conv1dOptions(1, 32, 7).stride(2).padding(3)};
  torch::nn::Conv1d conv2{torch::nn::Conv1dOptions(32, 64, 5).stride(2).padding(2)};
  torch::nn::Linear hidden{64, 64}, out{64, kWidth};
  EncoderImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  // Signals [N, 1, length] -> embeddings [N, kWidth] of length 1.
  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor y = torch::relu(conv2(torch::relu(conv1(x)))).mean(2);
    return torch::nn::functional::normalize(out(torch::relu(hidden(y))));
  }
};
TORCH_MODULE(Encoder);

using Signal = std::vector<float>;

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

void add_view(const Signal& signal, std::mt19937& random, float*& view) {
  std::normal_distribution<float> noise(0, 0.2f);
  const size_t shift = random() % kLength;
  for (size_t i = 0; i < signal.size(); ++i) *view++ = signal[(i + shift) % kLength] + noise(random);
}

double retrieved(torch::Tensor a, torch::Tensor b) {
  return a.matmul(b.t()).argmax(1).eq(torch::arange(kRows)).to(torch::kFloat).mean().item<double>();
}

int main() {
  torch::manual_seed(1);
  Encoder encoder;
  torch::optim::Adam optimizer(encoder->parameters(), 2e-3);
  std::mt19937 random(1);
  torch::Tensor a = torch::empty({kRows, 1, kLength}), b = torch::empty({kRows, 1, kLength});
  const torch::Tensor numbers = torch::arange(kRows);
  const auto fill = [&] {
    float *to_a = a.data_ptr<float>(), *to_b = b.data_ptr<float>();
    for (int64_t row = 0; row < kRows; ++row) {
      const Signal signal = draw(random);
      add_view(signal, random, to_a), add_view(signal, random, to_b);
    }
  };
  for (int step = 0; step < 1000; ++step) {
    fill();
    optimizer.zero_grad();
    const torch::Tensor similar = encoder(a).matmul(encoder(b).t()) / kTemperature;
    ((torch::cross_entropy_loss(similar, numbers) + torch::cross_entropy_loss(similar.t(), numbers)) * 0.5).backward();
    optimizer.step();
  }
  fill();
  torch::NoGradGuard no_grad;
  const double found = retrieved(encoder(a), encoder(b));
  std::printf("the other view is the nearest of %d for %.1f%%, by the signals themselves for %.1f%%\n",
      static_cast<int>(kRows), 100 * found, 100 * retrieved(a.squeeze(1), b.squeeze(1)));
  return found > 0.85 ? 0 : 1;
}

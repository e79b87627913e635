// examples/library/vae.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

constexpr int64_t kRows = 256, kLatent = 2, kWidth = 64;
constexpr double kNoise = 0.1;

struct VaeImpl : torch::nn::Module {
  torch::nn::Linear encoder1{2, kWidth}, encoder2{kWidth, 2 * kLatent};
  torch::nn::Linear decoder1{kLatent, kWidth}, decoder2{kWidth, kWidth}, decoder3{kWidth, 2};
  VaeImpl() {
    register_module("encoder1", encoder1);
    register_module("encoder2", encoder2);
    register_module("decoder1", decoder1);
    register_module("decoder2", decoder2);
    register_module("decoder3", decoder3);
  }
  torch::Tensor decode(torch::Tensor z) { return decoder3(torch::relu(decoder2(torch::relu(decoder1(z))))); }
  torch::Tensor loss(torch::Tensor x) {
    const auto code = encoder2(torch::relu(encoder1(x))).chunk(2, 1);
    const torch::Tensor mean = code[0], log_variance = code[1];
    const torch::Tensor z = mean + torch::exp(log_variance * 0.5) * torch::randn({kRows, kLatent});
    const torch::Tensor error = (x - decode(z)).square().sum() / (2 * kNoise * kNoise);
    const torch::Tensor divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).sum();
    return (error + divergence) / kRows;
  }
};
TORCH_MODULE(Vae);

int main() {
  torch::manual_seed(1);
  Vae vae;
  torch::optim::Adam optimizer(vae->parameters(), 2e-3);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> angle(0, 2 * std::numbers::pi_v<float>);
  std::normal_distribution<float> noise(0, 0.02f);
  torch::Tensor points = torch::empty({kRows, 2});
  for (int step = 0; step < 8000; ++step) {
    float* values = points.data_ptr<float>();
    for (int64_t i = 0; i < 2 * kRows; i += 2) {
      const float at = angle(random);
      values[i] = std::cos(at) + noise(random), values[i + 1] = std::sin(at) + noise(random);
    }
    if (step == 6000) static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[0].options()).lr(2e-4);
    optimizer.zero_grad();
    vae->loss(points).backward();
    optimizer.step();
  }
  torch::NoGradGuard no_grad;
  const double loss = vae->loss(points).item<double>();
  const torch::Tensor made = vae->decode(torch::randn({kRows, kLatent}));
  const double off = (made.norm(2, 1) - 1).abs().mean().item<double>();
  const torch::Tensor sides = ((made > 0).to(torch::kLong) * torch::tensor({1, 2})).sum(1);
  const auto least = torch::bincount(sides, {}, 4).min().item<int64_t>();
  std::printf("bound %.2f; made points are %.3f off the circle on average, %d of %d on the emptiest quarter\n", loss,
      off, static_cast<int>(least), static_cast<int>(kRows));
  return off < 0.15 && least > kRows / 10 ? 0 : 1;
}

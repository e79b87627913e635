// examples/library/gan.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <random>

constexpr int64_t kRows = 128, kNoise = 4;

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear a, b, c;
  MlpImpl(int64_t in, int64_t out) : a(in, 64), b(64, 64), c(64, out) {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  torch::Tensor forward(torch::Tensor x) { return c(torch::leaky_relu(b(torch::leaky_relu(a(x), 0.2)), 0.2)); }
};
TORCH_MODULE(Mlp);

int main() {
  torch::manual_seed(1);
  Mlp generator(kNoise, 2), critic(2, 1);
  const auto adam = torch::optim::AdamOptions(1e-3).betas({0.5, 0.9});
  torch::optim::Adam critic_optimizer(critic->parameters(), adam), generator_optimizer(generator->parameters(), adam);
  const auto made_points = [&] { return generator(torch::randn({kRows, kNoise})); };

  std::mt19937 random(1);
  std::uniform_real_distribution<float> angle(0, 6.2831853f);
  torch::Tensor points = torch::empty({kRows, 2});
  for (int step = 0; step < 3000; ++step) {
    float* values = points.data_ptr<float>();
    for (int64_t i = 0; i < 2 * kRows; i += 2) {
      const float at = angle(random);
      values[i] = std::cos(at), values[i + 1] = std::sin(at);
    }
    critic_optimizer.zero_grad();
    torch::Tensor made;
    {
      torch::NoGradGuard no_grad;
      made = made_points();
    }
    (torch::softplus(-critic(points)).mean() + torch::softplus(critic(made)).mean()).backward();
    critic_optimizer.step();

    for (torch::Tensor& parameter : critic->parameters()) parameter.set_requires_grad(false);
    generator_optimizer.zero_grad();
    torch::softplus(-critic(made_points())).mean().backward();
    generator_optimizer.step();
    for (torch::Tensor& parameter : critic->parameters()) parameter.set_requires_grad(true);
  }
  torch::NoGradGuard no_grad;
  const double off = (made_points().norm(2, 1) - 1).abs().mean().item<double>();
  std::printf("points are %.3f off the circle on average\n", off);
  return off < 0.15 ? 0 : 1;
}

// examples/library/diffusion.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

constexpr int64_t kRows = 16, kSize = 16, kTime = 64;
constexpr int kDraws = 40;
constexpr double kEnd = std::numbers::pi / 2;

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t size) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, size).padding(size / 2));
}

struct BlockImpl : torch::nn::Module {
  torch::nn::GroupNorm norm1, norm2;
  torch::nn::Conv2d conv1, conv2, shortcut;
  torch::nn::Linear shift;
  BlockImpl(int64_t in, int64_t out)
      : norm1(4, in), norm2(4, out), conv1(conv(in, out, 3)), conv2(conv(out, out, 3)), shortcut(conv(in, out, 1)),
        shift(kTime, out) {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("shortcut", shortcut);
    register_module("shift", shift);
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor time) {
    const torch::Tensor y = conv1(torch::silu(norm1(x))) + shift(time).unsqueeze(2).unsqueeze(3);
    return shortcut(x) + conv2(torch::silu(norm2(y)));
  }
};
TORCH_MODULE(Block);

struct UNetImpl : torch::nn::Module {
  torch::nn::Linear time1{16, kTime}, time2{kTime, kTime};
  torch::nn::Conv2d in = conv(1, 16, 3), out = conv(16, 1, 3);
  Block down1{16, 16}, down2{16, 32}, middle{32, 64}, up2{64 + 32, 32}, up1{32 + 16, 16};
  torch::nn::GroupNorm norm{4, 16};
  torch::Tensor frequencies = torch::exp(torch::arange(8) * 0.5);
  UNetImpl() {
    register_module("time1", time1);
    register_module("time2", time2);
    register_module("in", in);
    register_module("out", out);
    register_module("down1", down1);
    register_module("down2", down2);
    register_module("middle", middle);
    register_module("up2", up2);
    register_module("up1", up1);
    register_module("norm", norm);
    torch::nn::init::normal_(out->weight, 0, 0.01);
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor t) {
    const torch::Tensor angles = t.flatten(1) * frequencies;
    const torch::Tensor time = torch::silu(time2(torch::silu(time1(torch::cat({angles.sin(), angles.cos()}, 1)))));
    const torch::Tensor large = down1(in(x), time), medium = down2(torch::avg_pool2d(large, 2), time);
    const torch::Tensor y = upsample(middle(torch::avg_pool2d(medium, 2), time));
    return out(torch::silu(norm(up1(torch::cat({upsample(up2(torch::cat({y, medium}, 1), time)), large}, 1), time))));
  }
  static torch::Tensor upsample(torch::Tensor x) {
    return torch::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)});
  }
};
TORCH_MODULE(UNet);

torch::Tensor all_images() {
  std::vector<float> images;
  constexpr int kRadius = 4;
  for (int row = kRadius; row <= kSize - kRadius; row += 2)
    for (int column = kRadius; column <= kSize - kRadius; column += 2)
      for (const bool disc : {false, true})
        for (int y = -row; y < kSize - row; ++y)
          for (int x = -column; x < kSize - column; ++x)
            images.push_back((disc ? x * x + y * y : std::max(x * x, y * y)) <= kRadius * kRadius ? 1.0f : -1.0f);
  return torch::tensor(images).reshape({-1, 1, kSize, kSize});
}

int main() {
  torch::manual_seed(1);
  UNet net;
  const torch::Tensor images = all_images();
  constexpr int kSteps = 600;
  torch::optim::Adam optimizer(net->parameters(), 4e-3);
  for (int step = 0; step < kSteps; ++step) {
    const torch::Tensor image = images.index({torch::randint(images.size(0), {kRows})}),
                        noise = torch::randn_like(image);
    const torch::Tensor t = torch::rand({kRows, 1, 1, 1}) * kEnd;
    const torch::Tensor v = net(t.cos() * image + t.sin() * noise, t);
    const double rate = 2e-3 * (1 + std::cos(std::numbers::pi * (step + 1) / kSteps));
    static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[0].options()).lr(rate);
    optimizer.zero_grad();
    torch::mse_loss(v, t.cos() * noise - t.sin() * image).backward();
    optimizer.step();
  }

  torch::NoGradGuard no_grad;
  torch::Tensor x = torch::randn({kRows, 1, kSize, kSize});
  for (int draw = kDraws; draw > 0; --draw) {
    const double now = kEnd * draw / kDraws, next = kEnd * (draw - 1) / kDraws;
    const torch::Tensor v = net(x, torch::full({kRows, 1, 1, 1}, now));
    const torch::Tensor image = std::cos(now) * x - std::sin(now) * v, noise = std::sin(now) * x + std::cos(now) * v;
    x = std::cos(next) * image + std::sin(next) * noise;
  }
  const torch::Tensor different = ((x > 0).flatten(1).unsqueeze(1) != (images > 0).flatten(1)).sum(2);
  const int good = (different.amin(1) <= 16).sum().item<int>();
  std::printf("%d of %d made images are squares or discs\n", good, static_cast<int>(kRows));
  return good >= kRows / 2 ? 0 : 1;
}

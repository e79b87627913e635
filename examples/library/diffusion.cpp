// A diffusion model (Ho et al. 2020) with a U-Net (Ronneberger et al. 2015) draws squares and discs. Of
// cos(t) image + sin(t) noise, t in [0, pi / 2], the network predicts v = cos(t) noise - sin(t) image (Salimans & Ho
// 2022); images are made in 40 steps of DDIM (Song et al. 2021).
#include <linnet/linnet.h>
#include <algorithm>
#include <cstdio>
#include <numbers>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 16, kSize = 16, kTime = 64;
constexpr int kDraws = 40;
constexpr double kEnd = std::numbers::pi / 2;
const TensorType kImages{DType::kF32, {kRows, kSize, kSize, 1}}, kTimes{DType::kF32, {kRows, 1, 1, 1}};

struct Block : Module {
  Block(Module* parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), norm1{this, "norm1", 4, in}, norm2{this, "norm2", 4, out}, conv1{this, "conv1",
                                                                                                        in, out, 3,
                                                                                                        {.padding = 1}},
        conv2{this, "conv2", out, out, 3, {.padding = 1}}, shortcut{this, "shortcut", in, out, 1}, shift{this, "shift",
                                                                                                       kTime, out} {}
  Tensor operator()(Tensor x, Tensor time) {
    const Tensor y = conv1(silu(norm1(x))) + shift(time);
    return shortcut(x) + conv2(silu(norm2(y)));
  }
  GroupNorm norm1, norm2;
  Conv2d conv1, conv2, shortcut;
  Linear shift;
};

struct UNet : Module {
  Linear time1{this, "time1", 16, kTime}, time2{this, "time2", kTime, kTime};
  Conv2d in{this, "in", 1, 16, 3, {.padding = 1}};
  Block down1{this, "down1", 16, 16}, down2{this, "down2", 16, 32}, middle{this, "middle", 32, 64};
  Block up2{this, "up2", 64 + 32, 32}, up1{this, "up1", 32 + 16, 16};
  GroupNorm norm{this, "norm", 4, 16};
  Conv2d out{this, "out", 16, 1, 3, {.padding = 1, .initializer = normal_init(0.01)}};
  // x as kImages, t as kTimes -> v as kImages.
  Tensor operator()(Tensor x, Tensor t) {
    const Tensor angles = t * exp(arange(8) * 0.5);
    const Tensor time = silu(time2(silu(time1(concat({sin(angles), cos(angles)}, -1)))));  // [N, 1, 1, kTime]
    const Tensor large = down1(in(x), time), medium = down2(avg_pool(large), time);
    const Tensor y = upsample(middle(avg_pool(medium), time));
    return out(silu(norm(up1(concat({upsample(up2(concat({y, medium}, -1), time)), large}, -1), time))));
  }
};

// All images of the task: 1 in the shape and -1 around it.
std::vector<std::vector<float>> all_images() {
  std::vector<std::vector<float>> images;
  constexpr int kRadius = 4;
  for (int row = kRadius; row <= kSize - kRadius; row += 2)
    for (int column = kRadius; column <= kSize - kRadius; column += 2)
      for (const bool disc : {false, true}) {
        auto& image = images.emplace_back();
        for (int y = -row; y < kSize - row; ++y)
          for (int x = -column; x < kSize - column; ++x)
            image.push_back((disc ? x * x + y * y : std::max(x * x, y * y)) <= kRadius * kRadius ? 1.0f : -1.0f);
      }
  return images;
}

int main() {
  UNet net;
  Learner learner(net, [&](Tracer& trace) {
    const Tensor image = trace.input("image", kImages), noise = random_normal(kImages.shape);
    const Tensor t = random_uniform(kTimes.shape, 0, kEnd), v = net(cos(t) * image + sin(t) * noise, t);
    return squared_error_loss(trace, v, cos(t) * noise - sin(t) * image);
  });
  Learner sampler(net,
      [&](Tracer& trace) -> Loss {
        const Tensor x = trace.input("x", kImages), t = trace.input("t", kTimes), v = net(x, t);
        const Tensor image = cos(t) * x - sin(t) * v, noise = sin(t) * x + cos(t) * v;
        const Tensor next = t - kEnd / kDraws;
        trace.output("next", cos(next) * image + sin(next) * noise);
        return {};
      },
      {.training = false, .weights = &learner});
  const auto images = all_images();
  std::mt19937 random(1);
  constexpr int kSteps = 600;
  const Schedule rate{.kind = Schedule::Kind::kCosine, .peak = 4e-3, .max_steps = kSteps};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> batch;
    for (int64_t row = 0; row < kRows; ++row)
      std::ranges::copy(images[random() % images.size()], std::back_inserter(batch));
    learner.set("image", batch);
    learner.step(learning_rate(rate, step + 1));
  }

  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kSize * kSize);
  std::ranges::generate(x, [&] { return normal(random); });
  for (int draw = kDraws; draw > 0; --draw) {
    sampler.set("x", x), sampler.set("t", std::vector<float>(kRows, static_cast<float>(kEnd * draw / kDraws)));
    sampler.evaluate();
    std::ranges::copy(sampler.output("next"), x.begin());
  }
  int good = 0;  // made images that differ from one of the task in at most 16 of 256 pixels
  for (size_t row = 0; row < kRows; ++row)
    good += std::ranges::any_of(images, [&](const std::vector<float>& image) {
      int different = 0;
      for (size_t i = 0; i < image.size(); ++i) different += (x[row * image.size() + i] > 0) != (image[i] > 0);
      return different <= 16;
    });
  std::printf("%d of %d made images are squares or discs\n", good, static_cast<int>(kRows));
  return good >= kRows / 2 ? 0 : 1;
}

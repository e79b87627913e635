// examples/library/distillation.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <random>

constexpr int64_t kRows = 256, kClasses = 3;
constexpr double kTemperature = 2;

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear a, b, c;
  explicit MlpImpl(int64_t width) : a(2, width), b(width, width), c(width, kClasses) {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
    for (torch::nn::Linear* layer : {&a, &b}) {
      torch::nn::init::kaiming_normal_((*layer)->weight);
      torch::nn::init::zeros_((*layer)->bias);
    }
  }
  torch::Tensor forward(torch::Tensor x) { return c(torch::relu(b(torch::relu(a(x))))); }
  int count() const {
    int64_t all = 0;
    for (const torch::Tensor& parameter : parameters()) all += parameter.numel();
    return static_cast<int>(all);
  }
};
TORCH_MODULE(Mlp);

void draw(std::mt19937& random, torch::Tensor& points, torch::Tensor& labels) {
  std::uniform_real_distribution<float> uniform(0, 1);
  std::normal_distribution<float> noise(0, 0.03f);
  float* x = points.data_ptr<float>();
  int64_t* label = labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < kRows; ++i) {
    label[i] = random() % kClasses;
    const float radius = uniform(random), turn = 4 * radius + 2.0943951f * static_cast<float>(label[i]);
    x[2 * i] = 2 * radius * std::cos(turn) + noise(random);
    x[2 * i + 1] = 2 * radius * std::sin(turn) + noise(random);
  }
}

int main() {
  torch::manual_seed(1);
  Mlp teacher(256), student(16);
  torch::optim::Adam teacher_optimizer(teacher->parameters(), 1e-3), student_optimizer(student->parameters(), 3e-3);
  std::mt19937 random(1);
  torch::Tensor x = torch::empty({kRows, 2}), labels = torch::empty({kRows}, torch::kLong);
  for (int step = 0; step < 2000; ++step) {
    draw(random, x, labels);
    teacher_optimizer.zero_grad();
    torch::cross_entropy_loss(teacher(x), labels).backward();
    teacher_optimizer.step();
  }
  for (int step = 0; step < 8000; ++step) {
    draw(random, x, labels);
    torch::Tensor wanted;
    {
      torch::NoGradGuard no_grad;
      wanted = torch::log_softmax(teacher(x) / kTemperature, 1);
    }
    const torch::Tensor given = torch::log_softmax(student(x) / kTemperature, 1);
    student_optimizer.zero_grad();
    ((wanted.exp() * (wanted - given)).sum() * (kTemperature * kTemperature / kRows)).backward();
    student_optimizer.step();
  }
  torch::NoGradGuard no_grad;
  double right[2] = {};
  constexpr int kTests = 20;
  for (int test = 0; test < kTests; ++test) {
    draw(random, x, labels);
    right[0] += teacher(x).argmax(1).eq(labels).sum().item<double>();
    right[1] += student(x).argmax(1).eq(labels).sum().item<double>();
  }
  const double all = kTests * kRows, taught = 100 * right[1] / all;
  std::printf("teacher of %d parameters: %.1f%% right, student of %d: %.1f%%\n", teacher->count(), 100 * right[0] / all,
      student->count(), taught);
  return taught > 90 ? 0 : 1;
}

// examples/library/forecast.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <cmath>
#include <cstdio>
#include <random>

struct ForecasterImpl : torch::nn::Module {
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(1, 32).batch_first(true)};
  torch::nn::Linear out{32, 1};
  ForecasterImpl() {
    register_module("lstm", lstm);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto [states, last] = lstm->forward(x);
    return out(std::get<0>(last)[0]);
  }
};
TORCH_MODULE(Forecaster);

int main() {
  constexpr int64_t kPast = 24;
  torch::manual_seed(1);
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.05f);
  std::vector<float> wave;
  for (int i = 0; i < 2000; ++i) wave.push_back(std::sin(0.3f * static_cast<float>(i)) + noise(random));
  const torch::Tensor all = torch::tensor(wave);
  const torch::Tensor past = all.unfold(0, kPast, 1).slice(0, 0, -1).unsqueeze(2).contiguous();
  const torch::Tensor next = all.slice(0, kPast).unsqueeze(1).contiguous();
  const int64_t train = static_cast<int64_t>(0.8 * static_cast<double>(past.size(0)));
  const torch::Tensor order = torch::randperm(past.size(0));
  const torch::Tensor train_rows = order.slice(0, 0, train), test_rows = order.slice(0, train);

  Forecaster net;
  torch::optim::Adam optimizer(net->parameters(), 5e-3);
  for (int epoch = 0; epoch < 15; ++epoch)
    for (const torch::Tensor& rows : train_rows.index({torch::randperm(train)}).split(64)) {
      optimizer.zero_grad();
      torch::mse_loss(net(past.index({rows})), next.index({rows})).backward();
      optimizer.step();
    }
  torch::NoGradGuard no_grad;
  const torch::Tensor forecast = net(past.index({test_rows})), wanted = next.index({test_rows});
  const double loss = torch::mse_loss(forecast, wanted).item<double>();
  std::printf("mean squared error %.4f (of the noise alone 0.0025), absolute %.3f, of %lld\n", loss,
      torch::l1_loss(forecast, wanted).item<double>(), static_cast<long long>(test_rows.size(0)));
  return loss < 0.01 ? 0 : 1;
}

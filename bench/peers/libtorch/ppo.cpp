// examples/library/ppo.cpp with PyTorch's C++.
#include <torch/torch.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

constexpr int64_t kCarts = 16, kSteps = 64, kRows = 256;
constexpr size_t kPlayed = kCarts * kSteps;

struct ActorCriticImpl : torch::nn::Module {
  torch::nn::Linear a1{4, 64}, a2{64, 64}, action{64, 2}, c1{4, 64}, c2{64, 64}, value{64, 1};
  ActorCriticImpl() {
    register_module("a1", a1);
    register_module("a2", a2);
    register_module("action", action);
    register_module("c1", c1);
    register_module("c2", c2);
    register_module("value", value);
    torch::nn::init::normal_(action->weight, 0, 0.01);
  }
  torch::Tensor logits(torch::Tensor x) { return action(torch::tanh(a2(torch::tanh(a1(x))))); }
  torch::Tensor values(torch::Tensor x) { return value(torch::tanh(c2(torch::tanh(c1(x))))).squeeze(1); }
};
TORCH_MODULE(ActorCritic);

struct Cart {
  std::array<float, 4> state{};
  int age = 0;
  void reset(std::mt19937& random) {
    std::uniform_real_distribution<float> around(-0.05f, 0.05f);
    for (float& number : state) number = around(random);
    age = 0;
  }
  bool push(bool right) {
    auto& [x, v, angle, w] = state;
    const float s = std::sin(angle), c = std::cos(angle), force = ((right ? 10.0f : -10.0f) + 0.05f * w * w * s) / 1.1f;
    const float turn = (9.8f * s - c * force) / (0.5f * (4.0f / 3 - 0.1f * c * c / 1.1f));
    x += 0.02f * v, v += 0.02f * (force - 0.05f * turn * c / 1.1f), angle += 0.02f * w, w += 0.02f * turn;
    ++age;
    return std::abs(x) > 2.4f || std::abs(angle) > 0.2095f;
  }
};

int main() {
  torch::manual_seed(1);
  ActorCritic net;
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::array<Cart, kCarts> carts;
  for (Cart& cart : carts) cart.reset(random);
  std::vector<double> ages;
  std::vector<float> states(4 * kPlayed), log_chances(kPlayed), advantages(kPlayed), returns(kPlayed);
  std::vector<float> values(kPlayed + kCarts), goes_on(kPlayed);
  std::vector<int64_t> actions(kPlayed);
  torch::Tensor now = torch::empty({kCarts, 4}), chances;
  const auto look = [&](size_t at) {
    for (size_t i = 0; i < kCarts; ++i) std::ranges::copy(carts[i].state, now.data_ptr<float>() + 4 * i);
    torch::NoGradGuard no_grad;
    chances = torch::log_softmax(net->logits(now), 1);
    const torch::Tensor v = net->values(now);
    std::copy_n(v.data_ptr<float>(), kCarts, values.data() + at);
  };
  for (int round = 0; round < 100; ++round) {
    for (size_t at = 0; at < kPlayed; at += kCarts) {
      look(at);
      std::copy_n(now.data_ptr<float>(), 4 * kCarts, states.data() + 4 * at);
      for (size_t i = 0; i < kCarts; ++i) {
        const float* two = chances.data_ptr<float>() + 2 * i;
        actions[at + i] = uniform(random) < std::exp(two[1]);
        log_chances[at + i] = two[actions[at + i]];
        const bool fell = carts[i].push(actions[at + i] == 1), ends = fell || carts[i].age == 500;
        goes_on[at + i] = ends ? 0.0f : 1.0f;
        if (ends) ages.push_back(carts[i].age), carts[i].reset(random);
      }
    }
    look(kPlayed);
    for (size_t i = kPlayed; i-- > 0;) {
      const float after = i + kCarts < kPlayed ? advantages[i + kCarts] : 0.0f;
      advantages[i] = 1 + goes_on[i] * (0.99f * values[i + kCarts] + 0.99f * 0.95f * after) - values[i];
      returns[i] = advantages[i] + values[i];
    }
    const torch::Tensor all_states = torch::tensor(states).reshape({-1, 4}), all_actions = torch::tensor(actions);
    const torch::Tensor all_chances = torch::tensor(log_chances), all_returns = torch::tensor(returns);
    const torch::Tensor all_advantages = torch::tensor(advantages);
    for (int epoch = 0; epoch < 6; ++epoch)
      for (const torch::Tensor& rows : torch::randperm(kPlayed).split(kRows)) {
        const torch::Tensor x = all_states.index({rows}), all = torch::log_softmax(net->logits(x), 1);
        const torch::Tensor taken = all.gather(1, all_actions.index({rows}).unsqueeze(1)).squeeze(1);
        const torch::Tensor ratio = torch::exp(taken - all_chances.index({rows})),
                            advantage = all_advantages.index({rows});
        const torch::Tensor gain = torch::minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage);
        const torch::Tensor error = (net->values(x) - all_returns.index({rows})).square();
        optimizer.zero_grad();
        (((0.5 * error - gain).sum() + 0.01 * (all.exp() * all).sum()) / kRows).backward();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
        optimizer.step();
      }
  }
  const double first = std::accumulate(ages.begin(), ages.begin() + 50, 0.0) / 50;
  const double last = std::accumulate(ages.end() - 50, ages.end(), 0.0) / 50;
  std::printf("the pole stood for %.0f steps at first, for %.0f of 500 at the end\n", first, last);
  return last > 8 * first ? 0 : 1;
}

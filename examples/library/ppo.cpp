// Proximal policy optimization (Schulman et al. 2017) learns to balance a pole on a cart (Barto et al. 1983): 16 carts
// play 64 steps with the newest weights, then actor and critic are trained on what happened.
#include <linnet/linnet.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
using namespace linnet;

constexpr int64_t kCarts = 16, kSteps = 64, kRows = 256;
constexpr size_t kPlayed = kCarts * kSteps;

struct ActorCritic : Module {
  Linear a1{this, "a1", 4, 64}, a2{this, "a2", 64, 64}, action{this, "action", 64, 2, normal_init(0.01)};
  Linear c1{this, "c1", 4, 64}, c2{this, "c2", 64, 64}, value{this, "value", 64, 1};
  Tensor logits(Tensor x) { return action(tanh(a2(tanh(a1(x))))); }
  Tensor values(Tensor x) { return reshape(value(tanh(c2(tanh(c1(x))))), {x.dim(0)}); }
};

// Position, speed, angle and its speed; a push to the left or right every 0.02 s.
struct Cart {
  std::array<float, 4> state{};
  int age = 0;
  void reset(std::mt19937& random) {
    std::uniform_real_distribution<float> around(-0.05f, 0.05f);
    for (float& number : state) number = around(random);
    age = 0;
  }
  // Returns whether the pole fell.
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
  ActorCritic net;
  Learner learner(net,
      [&](Tracer& trace) -> Loss {
        const auto input = [&](const char* name) { return trace.input(name, {DType::kF32, {kRows}}); };
        const Tensor states = trace.input("states", {DType::kF32, {kRows, 4}});
        const Tensor actions = trace.input("actions", {DType::kI32, {kRows}});
        const Tensor all = log_softmax(net.logits(states)), advantage = input("advantages");
        const Tensor ratio = exp(sum(all * one_hot(actions, 2, DType::kF32), 1) - input("log_chances"));
        const Tensor gain = minimum(ratio * advantage, clamp(ratio, 0.8, 1.2) * advantage);
        const Tensor error = square(net.values(states) - input("returns"));
        return {.sum = sum(0.5 * error - gain) + 0.01 * sum(exp(all) * all), .count = trace.number(kRows)};
      },
      {.clip_norm = 0.5});
  Learner player(net,
      [&](Tracer& trace) -> Loss {
        const Tensor states = trace.input("states", {DType::kF32, {kCarts, 4}});
        trace.output("log_chances", log_softmax(net.logits(states)));
        trace.output("values", net.values(states));
        return {};
      },
      {.training = false, .weights = &learner});

  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::array<Cart, kCarts> carts;
  for (Cart& cart : carts) cart.reset(random);
  std::vector<double> ages;  // of all poles that fell or stood for 500 steps
  // By step, then by cart.
  std::vector<float> states(4 * kPlayed), log_chances(kPlayed), advantages(kPlayed), returns(kPlayed);
  std::vector<float> values(kPlayed + kCarts), goes_on(kPlayed);
  std::vector<int32_t> actions(kPlayed);
  const auto look = [&](size_t at) {  // chances and values of where the carts are now
    std::vector<float> now;
    for (const Cart& cart : carts) now.insert(now.end(), cart.state.begin(), cart.state.end());
    player.set("states", now);
    player.evaluate();
    std::ranges::copy(player.output("values"), values.begin() + static_cast<ptrdiff_t>(at));
    return now;
  };
  for (int round = 0; round < 100; ++round) {
    for (size_t at = 0; at < kPlayed; at += kCarts) {
      std::ranges::copy(look(at), states.begin() + static_cast<ptrdiff_t>(4 * at));
      for (size_t i = 0; i < kCarts; ++i) {
        const auto chances = player.output("log_chances").subspan(2 * i, 2);
        actions[at + i] = uniform(random) < std::exp(chances[1]);
        log_chances[at + i] = chances[static_cast<size_t>(actions[at + i])];
        const bool fell = carts[i].push(actions[at + i] == 1), ends = fell || carts[i].age == 500;
        goes_on[at + i] = ends ? 0.0f : 1.0f;
        if (ends) ages.push_back(carts[i].age), carts[i].reset(random);
      }
    }
    look(kPlayed);
    // Generalized advantage estimates (Schulman et al. 2016).
    for (size_t i = kPlayed; i-- > 0;) {
      const float after = i + kCarts < kPlayed ? advantages[i + kCarts] : 0.0f;
      advantages[i] = 1 + goes_on[i] * (0.99f * values[i + kCarts] + 0.99f * 0.95f * after) - values[i];
      returns[i] = advantages[i] + values[i];
    }
    Dataset played;
    played.add("states", {4}, states).add("actions", {}, actions).add("log_chances", {}, log_chances);
    played.add("advantages", {}, advantages).add("returns", {}, returns);
    Loader batches(played, {.batch = kRows, .shuffle = true, .seed = static_cast<uint64_t>(round), .workers = 0});
    learner.fit(batches, {.epochs = 6, .rate = 1e-3});
  }
  const double first = std::accumulate(ages.begin(), ages.begin() + 50, 0.0) / 50;
  const double last = std::accumulate(ages.end() - 50, ages.end(), 0.0) / 50;
  std::printf("the pole stood for %.0f steps at first, for %.0f of 500 at the end\n", first, last);
  return last > 8 * first ? 0 : 1;
}

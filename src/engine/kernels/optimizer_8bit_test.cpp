#include <algorithm>
#include <cmath>
#include "engine/kernels/optimizer.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct State {
  explicit State(int64_t n)
      : param(random_floats(n, 1)), grad(random_floats(n, 2)), ema(random_floats(n, 3)),
        m_scales(static_cast<size_t>(moment_blocks(n))), v_scales(m_scales.size()), m_codes(static_cast<size_t>(n)),
        v_codes(static_cast<size_t>(n)) {}
  UpdateArgs args(int64_t decay_count, int64_t step) {
    UpdateArgs a;
    a.n = static_cast<int64_t>(param.size()), a.decay_count = decay_count, a.weight_decay = 0.1;
    a.param = param.data(), a.grad = grad.data(), a.ema = ema.data(), a.ema_decay = 0.9;
    a.learning_rate = 0.01, a.step = step, a.grad_scale = 0.5f;
    return a;
  }
  Moments8bit moments() { return {m_codes.data(), m_scales.data(), v_codes.data(), v_scales.data()}; }
  // All that an update changes.
  std::vector<float> all() const {
    std::vector<float> all = param;
    for (const auto* part : {&ema, &m_scales, &v_scales}) all.insert(all.end(), part->begin(), part->end());
    for (const auto* part : {&m_codes, &v_codes}) all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  std::vector<float> param, grad, ema, m_scales, v_scales;
  std::vector<uint8_t> m_codes, v_codes;
};

double decoded_m(const State& s, size_t i) {
  const double q = static_cast<int8_t>(s.m_codes[i]);
  return s.m_scales[i / kMomentBlock] * q * std::abs(q) / (127.0 * 127.0);
}
double decoded_root(const State& s, size_t i) {
  const double c = s.v_codes[i];
  return s.v_scales[i / kMomentBlock] * c * c / (255.0 * 255.0);
}

// From moments of zero nothing is rounded before the parameters change: the first step is that of AdamW.
TEST(Optimizer8bit, TheFirstStepIsAdamWsAndMomentsAreKeptWithinTheSpacingOfCodes) {
  for (const int64_t n : {1, 255, 256, 300, 40'021}) {
    SCOPED_TRACE(n);
    const int64_t decayed = n / 2;
    State want(n);
    std::vector<float> m(static_cast<size_t>(n)), v(m.size());
    ThreadPool one(1);
    UpdateArgs adam;
    adam.n = n, adam.decay_count = decayed, adam.param = want.param.data(), adam.grad = want.grad.data();
    adam.m = m.data(), adam.v = v.data(), adam.ema = want.ema.data(), adam.ema_decay = 0.9;
    adam.learning_rate = 0.01, adam.weight_decay = 0.1, adam.grad_scale = 0.5f;
    adam_update(adam, one);
    std::vector<float> first;
    for_every_isa(
        [&](ThreadPool& pool) {
          State s(n);
          adam_8bit_update(s.args(decayed, 1), s.moments(), pool);
          EXPECT_TRUE(same_bits(s.param, want.param)) << "parameters";
          EXPECT_TRUE(same_bits(s.ema, want.ema)) << "average";
          for (size_t i = 0; i < m.size(); ++i) {
            const double top = s.m_scales[i / kMomentBlock], top_root = s.v_scales[i / kMomentBlock];
            // Half a code beside the value: the codes are as far apart as the derivative of the law says.
            EXPECT_NEAR(decoded_m(s, i), m[i], std::sqrt(std::abs(m[i]) * top) / 127 + top / 60'000) << i;
            EXPECT_NEAR(
                decoded_root(s, i), std::sqrt(v[i]), std::sqrt(std::sqrt(v[i]) * top_root) / 255 + top_root / 200'000)
                << i;
          }
          return s.all();
        },
        [&](const std::vector<float>& all) {
          if (first.empty()) first = all;
          EXPECT_TRUE(same_bits(all, first)) << "instruction sets differ";
        });
  }
}

TEST(Optimizer8bit, ManyStepsStayNearAdamWAndGiveTheSameBitsEverywhere) {
  const int64_t n = 20'000, steps = 50;
  const auto gradient = [&](int64_t step) {
    std::vector<float> g = random_floats(n, static_cast<uint32_t>(step), -0.5f, 1);
    for (int64_t i = 0; i < n; ++i) g[static_cast<size_t>(i)] *= static_cast<float>(1 + i % 97) / 50;
    return g;
  };
  State want(n);
  std::vector<float> m(n), v(n);
  ThreadPool one(1);
  for (int64_t step = 1; step <= steps; ++step) {
    want.grad = gradient(step);
    UpdateArgs adam;
    adam.n = n, adam.param = want.param.data(), adam.grad = want.grad.data(), adam.m = m.data(), adam.v = v.data();
    adam.learning_rate = 0.01, adam.step = step, adam.grad_scale = 0.5f;
    adam_update(adam, one);
  }
  const State start(n);
  std::vector<float> first;
  for_every_isa(
      [&](ThreadPool& pool) {
        State s(n);
        for (int64_t step = 1; step <= steps; ++step) {
          s.grad = gradient(step);
          adam_8bit_update(s.args(0, step), s.moments(), pool);
        }
        double difference = 0, moved = 0;
        for (size_t i = 0; i < s.param.size(); ++i) {
          difference += std::pow(s.param[i] - want.param[i], 2);
          moved += std::pow(want.param[i] - start.param[i], 2);
        }
        EXPECT_LT(std::sqrt(difference / moved), 0.02);
        return s.all();
      },
      [&](const std::vector<float>& all) {
        if (first.empty()) first = all;
        EXPECT_TRUE(same_bits(all, first)) << "instruction sets differ";
      });
}

// Beside a neighbor a million times larger, the root of v would round to 0, and a step would be m / epsilon.
TEST(Optimizer8bit, ASmallGradientBesideALargeOneMakesNoLargeStep) {
  ThreadPool pool(1);
  State s(256);
  std::fill(s.param.begin(), s.param.end(), 0.0f);
  for (int64_t step = 1; step <= 20; ++step) {
    std::fill(s.grad.begin(), s.grad.end(), 1e-6f);
    s.grad[7] = 1;
    adam_8bit_update(s.args(0, step), s.moments(), pool);
  }
  for (const float p : s.param) EXPECT_LE(std::abs(p), 20 * 0.011f);
}

TEST(Optimizer8bit, ZeroGradientsKeepZeroMoments) {
  ThreadPool pool(1);
  State s(300);
  std::fill(s.grad.begin(), s.grad.end(), 0.0f);
  const auto before = s.param;
  adam_8bit_update(s.args(0, 1), s.moments(), pool);
  EXPECT_TRUE(same_bits(s.param, before));
  EXPECT_EQ(std::ranges::count(s.m_codes, 0) + std::ranges::count(s.v_codes, 0), 600);
}
}  // namespace
}  // namespace linnet

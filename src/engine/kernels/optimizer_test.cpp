#include "engine/kernels/optimizer.h"
#include <cmath>
#include "kernel_testing.h"

namespace linnet {
namespace {
// Everything an update may touch, in one array: param, grad, m, v, ema.
struct State {
  explicit State(int64_t n) : n(n) {
    for (uint32_t k = 0; k < 5; ++k) {
      const auto part = random_floats(n, k, k == 3 ? 0.1f : -1.0f, 1);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  float* part(int k) { return all.data() + k * n; }
  int64_t n;
  std::vector<float> all;
};

struct AdamCase {
  int64_t n, decay_count;
  double beta1, weight_decay;
  bool decoupled, ema;
};

std::vector<double> adam_reference(const AdamCase& c, const UpdateArgs& a) {
  const State start(c.n);
  std::vector<double> all(start.all.begin(), start.all.end());
  for (int64_t i = 0; i < c.n; ++i) {
    double &p = all[i], g = all[c.n + i], &m = all[2 * c.n + i], &v = all[3 * c.n + i], &ema = all[4 * c.n + i];
    double d = g * a.grad_scale;
    if (i < c.decay_count && a.decoupled) p -= a.learning_rate * a.weight_decay * p;
    if (i < c.decay_count && !a.decoupled) d += a.weight_decay * p;
    m = a.beta1 * m + (1 - a.beta1) * d;
    v = a.beta2 * v + (1 - a.beta2) * d * d;
    const double bias1 = 1 - std::pow(a.beta1, a.step), bias2 = 1 - std::pow(a.beta2, a.step);
    p -= a.learning_rate / bias1 * m / (std::sqrt(v) / std::sqrt(bias2) + a.epsilon);
    if (c.ema) ema = a.ema_decay * ema + (1 - a.ema_decay) * p;
  }
  return all;
}

TEST(Optimizer, AdamMatchesTheFormulaWithTheSameBitsEverywhere) {
  const AdamCase cases[] = {{1, 0, 0.9, 0, true, false}, {37, 37, 0.9, 0.1, true, true},
      {1003, 501, 0.9, 0.1, false, true}, {50'021, 20'001, 0.0, 0.01, true, false}, {0, 0, 0.9, 0, true, true}};
  for (const AdamCase& c : cases) {
    SCOPED_TRACE(c.n);
    UpdateArgs args;
    args.n = c.n, args.decay_count = c.decay_count, args.learning_rate = 0.01, args.beta1 = c.beta1;
    args.weight_decay = c.weight_decay, args.decoupled = c.decoupled, args.step = 3, args.grad_scale = 0.5f;
    args.ema_decay = 0.98;
    const auto want = adam_reference(c, args);
    std::vector<float> first;
    for_every_isa(
        [&](ThreadPool& pool) {
          State s(c.n);
          args.param = s.part(0), args.grad = s.part(1), args.m = s.part(2), args.v = s.part(3);
          args.ema = c.ema ? s.part(4) : nullptr;
          adam_update(args, pool);
          return s.all;
        },
        [&](const std::vector<float>& all) {
          expect_close(all, want, 1e-6);
          if (first.empty()) first = all;
          EXPECT_TRUE(same_bits(all, first)) << "instruction sets differ";
        });
  }
}

TEST(Optimizer, SgdMatchesTheFormula) {
  for (const double momentum : {0.0, 0.9}) {
    const int64_t n = 20'011, decayed = 10'003;
    UpdateArgs args;
    args.n = n, args.decay_count = decayed, args.learning_rate = 0.1, args.momentum = momentum;
    args.weight_decay = 0.01, args.grad_scale = 2;
    args.ema_decay = 0.9;
    const State start(n);
    std::vector<double> want(start.all.begin(), start.all.end());
    for (int64_t i = 0; i < n; ++i) {
      double &p = want[i], &buffer = want[2 * n + i], &ema = want[4 * n + i];
      double g = 2 * want[n + i] + (i < decayed ? 0.01 * p : 0);
      if (momentum > 0) g = buffer = momentum * buffer + g;
      p -= 0.1 * g;
      ema = 0.9 * ema + 0.1 * p;
    }
    for_every_isa(
        [&](ThreadPool& pool) {
          State s(n);
          args.param = s.part(0), args.grad = s.part(1), args.ema = s.part(4);
          args.m = momentum > 0 ? s.part(2) : nullptr;
          sgd_update(args, pool);
          return s.all;
        },
        [&](const std::vector<float>& all) { expect_close(all, want, 1e-6); });
  }
}

TEST(Optimizer, ANanGradientReachesTheParameter) {
  ThreadPool pool(1);
  State s(5);
  s.part(1)[4] = kNan;
  adam_update({.n = 5, .param = s.part(0), .grad = s.part(1), .m = s.part(2), .v = s.part(3)}, pool);
  EXPECT_TRUE(std::isnan(s.part(0)[4]));
  EXPECT_FALSE(std::isnan(s.part(0)[3]));
}
}  // namespace
}  // namespace linnet

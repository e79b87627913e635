#include "engine/kernels/loss/cross_entropy.h"
#include <cmath>
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t rows, classes;
  float smoothing;
};

constexpr Problem kProblems[] = {
    {1, 1, 0}, {3, 2, 0.1f}, {4, 10, 0}, {33, 65, 0.1f}, {100, 257, 0}, {9, 6000, 0.1f}, {3, 50257, 0.2f}};

std::vector<int32_t> some_targets(const Problem& p) {
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < p.rows; ++i)
    targets.push_back(i % 3 == 1 ? -1 : static_cast<int32_t>((i * 7919 + p.classes - 1) % p.classes));
  return targets;
}

TEST(CrossEntropy, LossAndGradientMatchTheFormula) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.classes));
    const int64_t size = p.rows * p.classes;
    const auto x = random_floats(size, 1, -8, 8);
    const auto targets = some_targets(p);
    const float dloss = 0.37f;
    std::vector<double> want(size + 2 * p.rows);  // dlogits, losses, lse
    for (int64_t i = 0; i < p.rows; ++i) {
      if (targets[i] < 0) continue;
      const float* row = &x[i * p.classes];
      double sum = 0, mean = 0;
      for (int64_t j = 0; j < p.classes; ++j) {
        sum += std::exp(double(row[j]));
        mean += row[j] / double(p.classes);
      }
      want[size + i] = std::log(sum) - (1.0 - p.smoothing) * row[targets[i]] - p.smoothing * mean;
      want[size + p.rows + i] = std::log(sum);
      for (int64_t j = 0; j < p.classes; ++j)
        want[i * p.classes + j] = dloss * (std::exp(double(row[j])) / sum - p.smoothing / double(p.classes) -
                                              (j == targets[i] ? 1 - p.smoothing : 0));
    }
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> got = x;  // the gradient is written over the logits
          got.resize(want.size(), 9.0f);
          float *losses = &got[size], *lse = losses + p.rows;
          cross_entropy_forward(p.rows, p.classes, x.data(), targets.data(), p.smoothing, losses, lse, pool);
          cross_entropy_backward(
              p.rows, p.classes, got.data(), targets.data(), p.smoothing, lse, dloss, got.data(), pool);
          return got;
        },
        [&](const std::vector<float>& got) { expect_close(got, want, 2e-6); });
  }
}

TEST(CrossEntropy, InBf16OnlyWhatIsStoredIsRounded) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.classes));
    auto x = rounded_to_bf16(random_floats(p.rows * p.classes, 1, -8, 8));
    if (p.rows > 30) x[5] = kNan, x[3 * p.classes] = kInf;
    const auto targets = some_targets(p);
    const auto run = [&](auto logits, ThreadPool& pool) {  // the gradient is written over the logits
      std::vector<float> got(2 * p.rows);
      cross_entropy_forward(p.rows, p.classes, logits.data(), targets.data(), p.smoothing, &got[0], &got[p.rows], pool);
      cross_entropy_backward(
          p.rows, p.classes, logits.data(), targets.data(), p.smoothing, &got[p.rows], 0.37f, logits.data(), pool);
      got.insert(got.begin(), logits.begin(), logits.end());
      return got;
    };
    for_every_isa([&](ThreadPool& pool) { return run(to_bf16(x), pool); },
        [&](const std::vector<float>& got) {
          ThreadPool pool(1);
          std::vector<float> want = run(x, pool);
          for (int64_t i = 0; i < p.rows * p.classes; ++i) want[i] = round_to_bf16(want[i]);
          expect_same(got, want);
        });
  }
}

TEST(CrossEntropy, LargeLogitsStayFiniteAndSmallLossesExact) {
  ThreadPool pool(1);
  const std::vector<float> x = {10000, 9990, -10000};
  const int32_t target = 0;
  float loss, lse;
  cross_entropy_forward(1, 3, x.data(), &target, 0, &loss, &lse, pool);
  EXPECT_NEAR(loss, std::log1p(std::exp(-10.0)), 1e-7);
  EXPECT_FLOAT_EQ(lse, 10000);
}

TEST(CrossEntropy, NanShowsExceptInIgnoredRows) {
  const int64_t classes = 21;
  std::vector<float> x = random_floats(3 * classes, 1);
  x[3] = kNan;
  x[classes + 20] = kInf;
  x[2 * classes + 5] = kNan;
  const std::vector<int32_t> targets = {0, 1, -1};
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> got(6 + x.size());
        cross_entropy_forward(3, classes, x.data(), targets.data(), 0, got.data(), &got[3], pool);
        cross_entropy_backward(3, classes, x.data(), targets.data(), 0, &got[3], 1, &got[6], pool);
        return got;
      },
      [&](const std::vector<float>& got) {
        EXPECT_TRUE(std::isnan(got[0]));
        EXPECT_FALSE(std::isfinite(got[1]));
        EXPECT_EQ(got[2], 0);
        EXPECT_TRUE(std::isnan(got[6]));
        EXPECT_TRUE(std::isnan(got[6 + classes + 20]));
        EXPECT_EQ(got[6 + 2 * classes + 5], 0);
      });
}
}  // namespace
}  // namespace linnet

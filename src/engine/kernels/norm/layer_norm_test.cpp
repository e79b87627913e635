#include <array>
#include <cmath>
#include "engine/kernels/norm/norm.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t rows, width;
  bool centered = true, affine = true;
};

constexpr double kEpsilon = 1e-5;

std::array<double, 2> moments(const float* x, const Problem& p) {
  double mean = 0, variance = 0;
  for (int64_t j = 0; j < p.width; ++j) mean += p.centered ? x[j] / double(p.width) : 0;
  for (int64_t j = 0; j < p.width; ++j) variance += (x[j] - mean) * (x[j] - mean) / double(p.width);
  return {mean, 1 / std::sqrt(variance + kEpsilon)};
}

// y, then mean, then rstd.
std::vector<double> forward_reference(
    const Problem& p, const std::vector<float>& x, const std::vector<float>& weight, const std::vector<float>& bias) {
  std::vector<double> y(p.rows * p.width + 2 * p.rows);
  for (int64_t i = 0; i < p.rows; ++i) {
    const auto [mean, rstd] = moments(&x[i * p.width], p);
    for (int64_t j = 0; j < p.width; ++j) {
      const double n = (x[i * p.width + j] - mean) * rstd;
      y[i * p.width + j] = p.affine ? n * weight[j] + bias[j] : n;
    }
    y[p.rows * p.width + i] = mean;
    y[p.rows * p.width + p.rows + i] = rstd;
  }
  return y;
}

// dx, then dweight, then dbias.
std::vector<double> backward_reference(
    const Problem& p, const std::vector<float>& dy, const std::vector<float>& x, const std::vector<float>& weight) {
  const int64_t size = p.rows * p.width;
  std::vector<double> d(size + 2 * p.width);
  for (int64_t i = 0; i < p.rows; ++i) {
    const auto [mean, rstd] = moments(&x[i * p.width], p);
    double sum_g = 0, sum_gn = 0;
    const auto n = [&, mean = mean, rstd = rstd](int64_t j) { return (x[i * p.width + j] - mean) * rstd; };
    const auto g = [&](int64_t j) { return double(dy[i * p.width + j]) * (p.affine ? weight[j] : 1.0f); };
    for (int64_t j = 0; j < p.width; ++j) {
      sum_g += p.centered ? g(j) : 0;
      sum_gn += g(j) * n(j);
      d[size + j] += dy[i * p.width + j] * n(j);
      d[size + p.width + j] += dy[i * p.width + j];
    }
    for (int64_t j = 0; j < p.width; ++j)
      d[i * p.width + j] = rstd * (g(j) - sum_g / double(p.width) - n(j) * sum_gn / double(p.width));
  }
  return d;
}

const Problem kProblems[] = {{1, 1}, {3, 2}, {2, 7}, {5, 64}, {17, 67}, {200, 96}, {131, 257}, {70, 1024}, {3, 5003},
    {33, 100, false}, {90, 300, false, false}, {90, 300, true, false}};

TEST(LayerNorm, ForwardMatchesTheFormula) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width));
    const auto x = random_floats(p.rows * p.width, 1, 1, 5), weight = random_floats(p.width, 2),
               bias = random_floats(p.width, 3);
    const auto want = forward_reference(p, x, weight, bias);
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> y(want.size());
          float *mean = &y[p.rows * p.width], *rstd = mean + p.rows;
          RowNormForward args{.rows = p.rows, .width = p.width, .x = x.data()};
          if (p.affine) args.weight = weight.data(), args.bias = bias.data();
          args.epsilon = kEpsilon, args.centered = p.centered;
          args.y = y.data(), args.mean = mean, args.rstd = rstd;
          row_norm_forward(args, pool);
          return y;
        },
        [&](const std::vector<float>& y) { expect_close(y, want, p.width == 1 ? 1e-3 : 2e-5); });
  }
}

TEST(LayerNorm, BackwardMatchesTheFormula) {
  for (const Problem& p : kProblems) {
    if (p.width == 1) continue;
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width));
    const int64_t size = p.rows * p.width;
    const auto x = random_floats(size, 1, 0, 2), dy = random_floats(size, 4), weight = random_floats(p.width, 2);
    const auto want = backward_reference(p, dy, x, weight);
    std::vector<float> mean, rstd;
    for (int64_t i = 0; i < p.rows; ++i) {
      const auto m = moments(&x[i * p.width], p);
      mean.push_back(float(m[0]));
      rstd.push_back(float(m[1]));
    }
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> d(want.size()), work(row_norm_backward_workspace(p.rows, p.width) / sizeof(float));
          RowNormBackward args{.rows = p.rows, .width = p.width, .dy = dy.data(), .sum = x.data()};
          args.weight = p.affine ? weight.data() : nullptr, args.centered = p.centered;
          args.mean = p.centered ? mean.data() : nullptr, args.rstd = rstd.data();
          args.dx = d.data(), args.dweight = &d[size], args.dbias = &d[size + p.width];
          row_norm_backward(args, work.data(), pool);
          return d;
        },
        [&](const std::vector<float>& d) { expect_close(d, want, 1e-4); });
  }
}

// The arithmetic is that of fp32: what is stored as bf16 is its result rounded, the rest has the same bits.
TEST(LayerNorm, InBf16OnlyWhatIsStoredIsRounded) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.rows) + " x " + std::to_string(p.width));
    const int64_t size = p.rows * p.width;
    auto x = rounded_to_bf16(random_floats(size, 1, 0, 2)), dy = rounded_to_bf16(random_floats(size, 4));
    const auto weight = random_floats(p.width, 2), bias = random_floats(p.width, 3);
    if (size > 20) x[20] = kNan, dy[7] = kInf;
    // y and dx, then what is fp32: mean, rstd, dweight and dbias. In place.
    const auto run = [&](auto values, auto slopes, ThreadPool& pool) {
      std::vector<float> sums(2 * p.rows + 2 * p.width), work(row_norm_backward_workspace(p.rows, p.width) / 4);
      const auto kept = values;
      float *mean = sums.data(), *rstd = mean + p.rows, *dweight = rstd + p.rows, *dbias = dweight + p.width;
      RowNormForward forward{.rows = p.rows, .width = p.width, .x = values.data()};
      if (p.affine) forward.weight = weight.data(), forward.bias = bias.data();
      forward.epsilon = kEpsilon, forward.centered = p.centered;
      forward.y = values.data(), forward.mean = mean, forward.rstd = rstd;
      row_norm_forward(forward, pool);
      RowNormBackward backward{.rows = p.rows, .width = p.width, .dy = slopes.data(), .sum = kept.data()};
      backward.weight = forward.weight, backward.mean = mean, backward.rstd = rstd, backward.centered = p.centered;
      backward.dx = slopes.data(), backward.dweight = dweight, backward.dbias = dbias;
      row_norm_backward(backward, work.data(), pool);
      std::vector<float> result(values.begin(), values.end());
      result.insert(result.end(), slopes.begin(), slopes.end());
      result.insert(result.end(), sums.begin(), sums.end());
      return result;
    };
    for_every_isa([&](ThreadPool& pool) { return run(to_bf16(x), to_bf16(dy), pool); },
        [&](const std::vector<float>& got) {
          ThreadPool pool(1);
          std::vector<float> want = run(x, dy, pool);
          for (int64_t i = 0; i < 2 * size; ++i) want[i] = round_to_bf16(want[i]);
          expect_same(got, want);
        });
  }
}

TEST(LayerNorm, ALargeMeanDoesNotSwampTheVariance) {
  ThreadPool pool(1);
  std::vector<float> x(256), y(256);
  for (int i = 0; i < 256; ++i) x[i] = 1000.0f + (i % 2 ? 1.0f : -1.0f);
  row_norm_forward({.rows = 1, .width = 256, .x = x.data(), .y = y.data()}, pool);
  for (int i = 0; i < 256; ++i) EXPECT_NEAR(y[i], i % 2 ? 1 : -1, 1e-4);
}

TEST(LayerNorm, NanAndInfinityMakeTheirRowNan) {
  for (const float bad : {kNan, kInf}) {
    std::vector<float> x = random_floats(3 * 37, 1), rstd(3), mean(3);
    x[37 + 36] = bad;
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> y(x.size());
          row_norm_forward({.rows = 3, .width = 37, .x = x.data(), .epsilon = 1e-5f, .y = y.data()}, pool);
          return y;
        },
        [&](const std::vector<float>& y) {
          EXPECT_TRUE(std::isnan(y[37 + 36]));
          EXPECT_FALSE(std::isnan(y[0]) || std::isnan(y[2 * 37]));
        });
  }
}

TEST(LayerNorm, NoRowsGiveZeroSums) {
  ThreadPool pool(2);
  std::vector<float> work(row_norm_backward_workspace(0, 8) / sizeof(float)), dweight(8, 5), dbias(8, 5);
  row_norm_forward({.rows = 0, .width = 8, .x = nullptr, .epsilon = 1e-5f}, pool);
  row_norm_backward(
      {.rows = 0, .width = 8, .dy = nullptr, .sum = nullptr, .dweight = dweight.data(), .dbias = dbias.data()},
      work.data(), pool);
  EXPECT_EQ(dweight, std::vector<float>(8, 0));
  EXPECT_EQ(dbias, std::vector<float>(8, 0));
}
}  // namespace
}  // namespace linnet

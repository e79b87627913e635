#include <cmath>
#include "engine/kernels/reduce/reduce.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
constexpr int64_t kShapes[][2] = {{1, 1}, {3, 2}, {2, 17}, {40, 64}, {7, 1021}, {300, 129}, {2, 20001}};

std::vector<double> reference(int64_t rows, int64_t width, const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    double largest = -kInf, sum = 0;
    for (int64_t j = 0; j < width; ++j) largest = std::max<double>(largest, x[i * width + j]);
    for (int64_t j = 0; j < width; ++j) sum += y[i * width + j] = std::exp(x[i * width + j] - largest);
    for (int64_t j = 0; j < width; ++j) y[i * width + j] /= sum;
  }
  return y;
}

TEST(Softmax, ForwardAndBackwardMatchTheFormula) {
  for (const auto& [rows, width] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    auto x = random_floats(rows * width, 1, -30, 30);
    if (width > 2) x[1] = -kInf;
    const auto want = reference(rows, width, x);
    for_every_isa(
        [&, rows = rows, width = width](ThreadPool& pool) {
          std::vector<float> y = x;
          softmax_forward(rows, width, y.data(), y.data(), pool);
          return y;
        },
        [&](const std::vector<float>& y) { expect_close(y, want, 2e-6); });

    const auto dy = random_floats(rows * width, 2);
    const std::vector<float> y(want.begin(), want.end());
    std::vector<double> dx(y.size());
    for (int64_t i = 0; i < rows; ++i) {
      double dot = 0;
      for (int64_t k = i * width; k < (i + 1) * width; ++k) dot += double(dy[k]) * y[k];
      for (int64_t k = i * width; k < (i + 1) * width; ++k) dx[k] = y[k] * (dy[k] - dot);
    }
    for_every_isa(
        [&, rows = rows, width = width](ThreadPool& pool) {
          std::vector<float> d = dy;
          softmax_backward(rows, width, d.data(), y.data(), d.data(), pool);
          return d;
        },
        [&](const std::vector<float>& d) { expect_close(d, dx, 2e-6); });
  }
}

TEST(Softmax, MaskedRowsAreZeroAndNanShows) {
  const int64_t width = 19;
  std::vector<float> x(4 * width, -kInf);
  x[width + 18] = kNan;     // NaN among masked
  x[2 * width + 3] = kInf;  // an overflow
  x[3 * width + 5] = 2;     // one survivor
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> y(x.size());
        softmax_forward(4, width, x.data(), y.data(), pool);
        return y;
      },
      [&](const std::vector<float>& y) {
        for (int64_t j = 0; j < width; ++j) {
          EXPECT_EQ(y[j], 0);
          EXPECT_TRUE(std::isnan(y[width + j]));
          EXPECT_EQ(y[3 * width + j], j == 5 ? 1 : 0);
        }
        EXPECT_TRUE(std::isnan(y[2 * width + 3]));
      });
}

TEST(Softmax, LogSumExpOfRowsMatchesTheFormula) {
  for (const auto& [rows, width] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const auto x = random_floats(rows * width, 3, -30, 30);
    std::vector<double> want;
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) sum += std::exp(static_cast<double>(x[i * width + j]));
      want.push_back(std::log(sum));
    }
    for_every_isa(
        [&, rows = rows, width = width](ThreadPool& pool) {
          std::vector<float> y(static_cast<size_t>(rows));
          log_sum_exp_rows(rows, width, x.data(), y.data(), pool);
          return y;
        },
        [&](const std::vector<float>& y) { expect_close(y, want, 1e-6); });
  }
}

TEST(Softmax, LogSumExpOfMaskedAndBrokenRows) {
  const int64_t width = 19;
  std::vector<float> x(4 * width, -kInf);
  x[width + 18] = kNan;
  x[2 * width + 3] = kInf;
  x[3 * width + 5] = 90;  // exp(90) is beyond float
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> y(4);
        log_sum_exp_rows(4, width, x.data(), y.data(), pool);
        return y;
      },
      [&](const std::vector<float>& y) {
        expect_close(y, std::vector<float>{-kInf, kNan, kInf, 90}, 0);
      });
}
}  // namespace
}  // namespace linnet

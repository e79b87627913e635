#include "engine/kernels/conv/dense_head.h"
#include <cmath>
#include <vector>
#include "kernel_testing.h"

namespace linnet {
namespace {
const DenseHeadShape kShapes[] = {{128, 10, 3136}, {1, 1, 1}, {3, 16, 70}, {17, 7, 513}, {40, 5, 64}, {33, 11, 1030},
    {16, 2, 15}, {66, 12, 200}, {5, 3, 0}, {0, 4, 20}};

struct Case {
  explicit Case(const DenseHeadShape& s)
      : s(s), x(random_floats(s.m * s.k, 1)), w(random_floats(s.n * s.k, 2)), bias(random_floats(s.n, 3)),
        dy(random_floats(s.m * s.n, 4)) {}
  float x_at(int64_t i, int64_t j) const { return x[static_cast<size_t>(i * s.k + j)]; }
  float w_at(int64_t i, int64_t j) const { return w[static_cast<size_t>(i * s.k + j)]; }
  float dy_at(int64_t i, int64_t j) const { return dy[static_cast<size_t>(i * s.n + j)]; }
  DenseHeadShape s;
  std::vector<float> x, w, bias, dy;
};

TEST(DenseHead, Forward) {
  for (const DenseHeadShape& s : kShapes)
    for (const bool with_bias : {false, true}) {
      const Case c(s);
      std::vector<double> want;
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = with_bias ? c.bias[static_cast<size_t>(j)] : 0;
          for (int64_t k = 0; k < s.k; ++k) sum += static_cast<double>(c.x_at(i, k)) * c.w_at(j, k);
          want.push_back(with_bias && sum < 0 ? 0 : sum);
        }
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<float> y(want.size() + 1, 77);
            dense_head_forward(
                s, c.x.data(), c.w.data(), with_bias ? c.bias.data() : nullptr, with_bias, y.data(), pool);
            EXPECT_EQ(y.back(), 77);
            y.pop_back();
            return y;
          },
          [&](const std::vector<float>& got) { expect_close(got, want, 5e-4); });
    }
}

TEST(DenseHead, Gradients) {
  for (const DenseHeadShape& s : kShapes)
    for (const bool accumulate : {false, true}) {
      const Case c(s);
      std::vector<double> want(static_cast<size_t>((s.n + s.m) * s.k), accumulate ? 3 : 0);
      double *dw = want.data(), *dx = dw + s.n * s.k;
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j)
          for (int64_t k = 0; k < s.k; ++k) {
            dw[j * s.k + k] += static_cast<double>(c.dy_at(i, j)) * c.x_at(i, k);
            dx[i * s.k + k] += static_cast<double>(c.dy_at(i, j)) * c.w_at(j, k);
          }
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<float> got(want.size() + 1, accumulate ? 3 : kNan);
            got.back() = 77;
            float *dw = got.data(), *dx = dw + s.n * s.k;
            dense_head_weight_gradient(s, c.dy.data(), c.x.data(), accumulate, dw, pool);
            dense_head_input_gradient(s, c.dy.data(), c.w.data(), accumulate, dx, pool);
            EXPECT_EQ(got.back(), 77);
            got.pop_back();
            return got;
          },
          [&](const std::vector<float>& got) { expect_close(got, want, 1e-4); });
    }
}

TEST(DenseHead, NanAndInfinityReachTheirRowsOnly) {
  Case c({20, 10, 100});
  c.x[3 * 100 + 99] = kNan;
  c.x[7 * 100] = kInf;
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> y(200);
        dense_head_forward(c.s, c.x.data(), c.w.data(), c.bias.data(), true, y.data(), pool);
        return y;
      },
      [&](const std::vector<float>& y) {
        for (size_t i = 0; i < y.size(); ++i) {
          EXPECT_EQ(std::isnan(y[i]), i / 10 == 3);
          EXPECT_EQ(std::isinf(y[i]), i / 10 == 7 && c.w[i % 10 * 100] > 0);
        }
      });
}
}  // namespace
}  // namespace linnet

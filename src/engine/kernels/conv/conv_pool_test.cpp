#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>
#include "engine/kernels/conv/pool.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Case {
  ConvPoolShape shape;
  std::vector<float> x, weight, bias, dy;

  explicit Case(const ConvPoolShape& s)
      : shape(s), x(random_floats(s.images * s.height * s.width * s.channels, 1)),
        weight(random_floats(s.filters * 9 * s.channels, 2)), bias(random_floats(s.filters, 3)),
        dy(random_floats(pooled(), 4)) {}
  int64_t pooled() const { return shape.images * shape.pooled_height() * shape.pooled_width() * shape.filters; }

  // The four sums of a window: [4].
  std::vector<double> sums(int64_t n, int64_t i, int64_t j, int64_t o) const {
    std::vector<double> result;
    for (int64_t window = 0; window < 4; ++window) {
      double sum = bias[static_cast<size_t>(o)];
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t c = 0; c < shape.channels; ++c)
          sum += static_cast<double>(pixel(n, 2 * i + window / 2 + tap / 3 - 1, 2 * j + window % 2 + tap % 3 - 1, c)) *
                 weight[static_cast<size_t>((o * 9 + tap) * shape.channels + c)];
      result.push_back(sum);
    }
    return result;
  }
  float pixel(int64_t n, int64_t row, int64_t column, int64_t c) const {
    if (row < 0 || row >= shape.height || column < 0 || column >= shape.width) return 0;
    return x[static_cast<size_t>(((n * shape.height + row) * shape.width + column) * shape.channels + c)];
  }
  template <class Body> void for_pooled(const Body& body) const {
    for (int64_t n = 0, at = 0; n < shape.images; ++n)
      for (int64_t i = 0; i < shape.pooled_height(); ++i)
        for (int64_t j = 0; j < shape.pooled_width(); ++j)
          for (int64_t o = 0; o < shape.filters; ++o) body(n, i, j, o, static_cast<size_t>(at++));
  }
};

struct Workspace {
  Workspace(const ConvPoolShape& shape, int threads) : words(conv_pool_workspace(shape, threads) / 8 + 8) {}
  std::byte* data() {
    auto address = reinterpret_cast<uintptr_t>(words.data());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }
  std::vector<double> words;
};

// y, then which, as floats.
std::vector<float> forward(const Case& c, ThreadPool& pool) {
  const auto count = static_cast<size_t>(c.pooled());
  std::vector<float> y(count + 1, 77);  // nothing is written past the end
  std::vector<uint8_t> which(count + 1, 77);
  Workspace workspace(c.shape, pool.size());
  conv_pool_forward(
      c.shape, {.floats = c.x.data()}, c.weight.data(), c.bias.data(), y.data(), which.data(), workspace.data(), pool);
  EXPECT_EQ(y.back(), 77);
  EXPECT_EQ(which.back(), 77);
  y.back() = 0;
  y.insert(y.end(), which.begin(), which.end() - 1);
  return y;
}

const ConvPoolShape kShapes[] = {{3, 28, 28, 1, 16}, {1, 2, 2, 1, 1}, {2, 3, 5, 1, 7}, {2, 5, 70, 1, 21},
    {9, 4, 6, 2, 16}, {1, 7, 34, 3, 40}, {2, 6, 6, 17, 3}, {20, 4, 4, 1, 5}, {2, 15, 32, 1, 24}};

TEST(ConvPool, ForwardTakesTheLargestOfFour) {
  for (const ConvPoolShape& shape : kShapes) {
    const Case c(shape);
    std::vector<double> want(static_cast<size_t>(c.pooled()));
    c.for_pooled([&](int64_t n, int64_t i, int64_t j, int64_t o, size_t at) {
      const auto sums = c.sums(n, i, j, o);
      want[at] = std::max(0.0, *std::max_element(sums.begin(), sums.end()));
    });
    for_every_isa([&](ThreadPool& pool) { return forward(c, pool); },
        [&](std::vector<float> got) {
          const std::vector<float> which(got.end() - static_cast<ptrdiff_t>(want.size()), got.end());
          got.resize(want.size());
          expect_close(got, want, 1e-5 * static_cast<double>(shape.channels));
          c.for_pooled([&](int64_t n, int64_t i, int64_t j, int64_t o, size_t at) {
            if (got[at] == 0) {
              EXPECT_EQ(which[at], kDeadWindow);
              return;
            }
            ASSERT_LT(which[at], 4);
            EXPECT_NEAR(c.sums(n, i, j, o)[static_cast<size_t>(which[at])], want[at], 1e-4);
          });
        });
  }
}

TEST(ConvPool, NanInfinityAndOverflowComeOutAsArithmeticSays) {
  for (const float special : {kNan, kInf, -kInf, 3e38f}) {
    Case c({2, 6, 8, 2, 5});
    c.x[2 * (3 * 8 + 4)] = special;
    std::vector<double> want(static_cast<size_t>(c.pooled()));
    c.for_pooled([&](int64_t n, int64_t i, int64_t j, int64_t o, size_t at) {
      double largest = -std::numeric_limits<double>::infinity();
      for (double sum : c.sums(n, i, j, o)) largest = std::isnan(sum) || sum > largest ? sum : largest;
      want[at] = largest <= 0 ? 0 : static_cast<double>(static_cast<float>(largest));
    });
    for_every_isa([&](ThreadPool& pool) { return forward(c, pool); },
        [&](std::vector<float> got) {
          got.resize(want.size());
          expect_close(got, want, 2e-5);
        });
  }
}

TEST(ConvPool, NotFiniteWeightsReachEveryWindow) {
  Case c({1, 4, 4, 1, 3});
  c.weight[9 + 4] = kNan;  // the middle of the second filter
  for_every_isa([&](ThreadPool& pool) { return forward(c, pool); },
      [&](const std::vector<float>& got) {
        c.for_pooled([&](int64_t, int64_t, int64_t, int64_t o, size_t at) { EXPECT_EQ(std::isnan(got[at]), o == 1); });
      });
}

TEST(ConvPool, GradientsFollowTheLargest) {
  for (const ConvPoolShape& shape : kShapes) {
    const Case c(shape);
    std::vector<uint8_t> which(static_cast<size_t>(c.pooled()));
    for (size_t i = 0; i < which.size(); ++i) which[i] = static_cast<uint8_t>(i * 7 % 5);
    std::vector<double> want(c.weight.size() + c.bias.size() + c.x.size());
    double *dweight = want.data(), *dbias = dweight + c.weight.size(), *dx = dbias + c.bias.size();
    c.for_pooled([&](int64_t n, int64_t i, int64_t j, int64_t o, size_t at) {
      if (which[at] == kDeadWindow) return;
      dbias[o] += c.dy[at];
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t channel = 0; channel < shape.channels; ++channel) {
          const int64_t row = 2 * i + which[at] / 2 + tap / 3 - 1, column = 2 * j + which[at] % 2 + tap % 3 - 1;
          if (row < 0 || row >= shape.height || column < 0 || column >= shape.width) continue;
          const int64_t pixel = ((n * shape.height + row) * shape.width + column) * shape.channels + channel;
          const int64_t weight = (o * 9 + tap) * shape.channels + channel;
          dweight[weight] += static_cast<double>(c.dy[at]) * c.x[static_cast<size_t>(pixel)];
          dx[pixel] += static_cast<double>(c.dy[at]) * c.weight[static_cast<size_t>(weight)];
        }
    });
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> got(want.size());
          Workspace workspace(shape, pool.size());
          float *dw = got.data(), *db = dw + c.weight.size(), *image = db + c.bias.size();
          conv_pool_weight_gradient(
              shape, {.floats = c.x.data()}, which.data(), {.dy = c.dy.data()}, dw, db, workspace.data(), pool);
          conv_pool_input_gradient(shape, c.weight.data(), which.data(), c.dy.data(), image, workspace.data(), pool);
          return got;
        },
        [&](const std::vector<float>& got) { expect_close(got, want, 1e-4); });
  }
}

TEST(ConvPool, SlopesThatAreAProductAreComputedOnTheWay) {
  for (const ConvPoolShape& shape : kShapes)
    for (const int64_t outputs : {1, 10, 16}) {
      const Case c(shape);
      const int64_t width = c.pooled() / shape.images;
      std::vector<float> factor(static_cast<size_t>(shape.images * outputs)),
          weight(static_cast<size_t>(outputs * width));
      for (size_t i = 0; i < factor.size(); ++i) factor[i] = static_cast<float>(i * 5 % 7) - 3;
      for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.01f * static_cast<float>(i * 11 % 13);
      std::vector<float> dy(static_cast<size_t>(c.pooled()));
      for (size_t at = 0; at < dy.size(); ++at)
        for (int64_t k = 0; k < outputs; ++k)
          dy[at] += factor[at / static_cast<size_t>(width) * static_cast<size_t>(outputs) + static_cast<size_t>(k)] *
                    weight[static_cast<size_t>(k * width) + at % static_cast<size_t>(width)];
      std::vector<uint8_t> which(dy.size());
      for (size_t i = 0; i < which.size(); ++i) which[i] = static_cast<uint8_t>(i * 7 % 5);
      const auto run = [&](const ConvPoolSlopes& slopes, ThreadPool& pool) {
        std::vector<float> got(c.weight.size() + c.bias.size());
        Workspace workspace(shape, pool.size());
        conv_pool_weight_gradient(shape, {.floats = c.x.data()}, which.data(), slopes, got.data(),
            got.data() + c.weight.size(), workspace.data(), pool);
        return got;
      };
      ThreadPool one(1);
      const std::vector<float> given = run({.dy = dy.data()}, one);
      for_every_isa(
          [&](ThreadPool& pool) {
            return run({.factor = factor.data(), .weight = weight.data(), .outputs = outputs}, pool);
          },
          [&](const std::vector<float>& got) { expect_close(got, given, 1e-4); });
    }
}

TEST(ConvPool, BytesAreTheFloatsTheyStandFor) {
  for (int64_t channels : {1, 3}) {
    Case c({3, 6, 22, channels, 9});
    const std::vector<float> scale{0.01f, 0.02f, 0.03f}, shift{-0.5f, 0.25f, 1.0f};
    std::vector<uint8_t> bytes(c.x.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(i * 37);
      const size_t channel = i % static_cast<size_t>(channels);
      c.x[i] = static_cast<float>(bytes[i] * static_cast<double>(scale[channel]) + shift[channel]);
    }
    std::vector<uint8_t> which(static_cast<size_t>(c.pooled()));
    for (size_t i = 0; i < which.size(); ++i) which[i] = static_cast<uint8_t>(i * 7 % 5);
    const auto run = [&](const ConvPoolImages& x, ThreadPool& pool) {
      std::vector<float> got(static_cast<size_t>(c.pooled()) + c.weight.size() + c.bias.size());
      std::vector<uint8_t> locations(which.size());
      Workspace workspace(c.shape, pool.size());
      float *dw = got.data() + c.pooled(), *db = dw + c.weight.size();
      conv_pool_forward(
          c.shape, x, c.weight.data(), c.bias.data(), got.data(), locations.data(), workspace.data(), pool);
      conv_pool_weight_gradient(c.shape, x, which.data(), {.dy = c.dy.data()}, dw, db, workspace.data(), pool);
      return got;
    };
    ThreadPool one(1);
    const std::vector<float> floats = run({.floats = c.x.data()}, one);
    for_every_isa(
        [&](ThreadPool& pool) {
          return run({.bytes = bytes.data(), .scale = scale.data(), .shift = shift.data()}, pool);
        },
        [&](const std::vector<float>& got) { expect_close(got, floats, 1e-4); });
  }
}
}  // namespace
}  // namespace linnet

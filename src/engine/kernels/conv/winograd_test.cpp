// Winograd's minimal filtering beside sums over taps in double precision, of images and weights as a ResNet has them.
#include <algorithm>
#include <cmath>
#include <random>
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
ConvolutionSizes sizes_of(int64_t images, int64_t height, int64_t width, int64_t channels, int64_t filters) {
  return {images, height, width, channels, filters, 3, 3, height, width, 1, 1};
}

std::vector<float> normal_floats(int64_t n, uint32_t seed, double deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(normal(random));
  return x;
}

TEST(ConvolutionSizes, WhoseProductIsAMultipleOf2To64AreNotEmpty) {
  const ConvolutionSizes sizes = sizes_of(16, 2048, 2048, 256, 256);
  for (const ConvolutionPass pass : {ConvolutionPass::kForward, ConvolutionPass::kInputGradient})
    EXPECT_GT(convolution_workspace({sizes}, pass, 1), 0U);
}

// visit(index of y, index of x, index of the weight) for every product of the convolution.
template <class Visit> void for_products(const ConvolutionSizes& s, const Visit& visit) {
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t i = 0; i < s.out_height; ++i)
      for (int64_t j = 0; j < s.out_width; ++j)
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t q = 0; q < 3; ++q) {
            const int64_t row = i + r - s.padding, column = j + q - s.padding;
            if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
            const int64_t y = ((n * s.out_height + i) * s.out_width + j) * s.filters;
            const int64_t x = ((n * s.height + row) * s.width + column) * s.channels;
            for (int64_t o = 0; o < s.filters; ++o)
              for (int64_t c = 0; c < s.channels; ++c)
                visit(static_cast<size_t>(y + o), static_cast<size_t>(x + c),
                    static_cast<size_t>(((o * 3 + r) * 3 + q) * s.channels + c));
          }
}

// The largest error, as a part of the root mean square of all results.
double largest_error(const std::vector<float>& result, const std::vector<double>& due) {
  double largest = 0, squares = 0;
  for (size_t i = 0; i < due.size(); ++i) {
    largest = std::max(largest, std::abs(result[i] - due[i]));
    squares += due[i] * due[i];
  }
  return largest / std::sqrt(squares / static_cast<double>(due.size()));
}

TEST(Winograd, ErrorsAreSmallBesideDoublePrecision) {
  for (const ConvolutionSizes& s : {sizes_of(4, 32, 32, 16, 16), sizes_of(4, 16, 16, 32, 32), sizes_of(8, 8, 8, 64, 64),
           sizes_of(2, 15, 13, 64, 128)}) {
    SCOPED_TRACE(std::to_string(s.channels) + " to " + std::to_string(s.filters));
    ASSERT_EQ(convolution_method(s), ConvolutionMethod::kWinograd4x4);
    const int64_t pixels = s.images * s.height * s.width;
    std::vector<float> x = normal_floats(pixels * s.channels, 1, 1);
    for (float& v : x) v = std::max(v, 0.0f);  // as after ReLU
    const std::vector<float> dy = normal_floats(pixels * s.filters, 2, 1e-3);
    const std::vector<float> weight =
        normal_floats(s.filters * 9 * s.channels, 3, std::sqrt(2.0 / static_cast<double>(9 * s.channels)));
    std::vector<double> y(dy.size()), dx(x.size()), dweight(weight.size());
    for_products(s, [&](size_t of_y, size_t of_x, size_t w) {
      y[of_y] += static_cast<double>(x[of_x]) * weight[w];
      dx[of_x] += static_cast<double>(dy[of_y]) * weight[w];
      dweight[w] += static_cast<double>(dy[of_y]) * x[of_x];
    });
    const auto check = [&](ConvolutionPass pass, const std::vector<double>& due, const auto& run) {
      for_every_isa(
          [&](ThreadPool& pool) {
            AlignedBytes workspace(convolution_workspace({s}, pass, pool.size()));
            std::vector<float> result(due.size());
            run(result.data(), workspace.data(), pool);
            return result;
          },
          [&](const std::vector<float>& result) { EXPECT_LT(largest_error(result, due), 1e-5); });
    };
    check(ConvolutionPass::kForward, y, [&](float* result, std::byte* workspace, ThreadPool& pool) {
      convolution_forward({s}, x.data(), weight.data(), result, workspace, pool);
    });
    check(ConvolutionPass::kInputGradient, dx, [&](float* result, std::byte* workspace, ThreadPool& pool) {
      convolution_input_gradient({s}, dy.data(), weight.data(), result, workspace, pool);
    });
    check(ConvolutionPass::kWeightGradient, dweight, [&](float* result, std::byte* workspace, ThreadPool& pool) {
      convolution_weight_gradient({s}, x.data(), dy.data(), result, workspace, pool);
    });
  }
}

// A pixel that is not finite spoils what shares a tile with it, and nothing beyond.
TEST(Winograd, WhatIsNotFiniteStaysWithinFourPixels) {
  const ConvolutionSizes s = sizes_of(2, 17, 19, 16, 16);
  ASSERT_EQ(convolution_method(s), ConvolutionMethod::kWinograd4x4);
  const int64_t row = 9, column = 10;
  std::vector<float> x = random_floats(s.images * s.height * s.width * s.channels, 1);
  x[static_cast<size_t>((row * s.width + column) * s.channels + 3)] = kInf;
  const std::vector<float> weight = random_floats(s.filters * 9 * s.channels, 2);
  for_every_isa(
      [&](ThreadPool& pool) {
        AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kForward, pool.size()));
        std::vector<float> y(x.size());
        convolution_forward({s}, x.data(), weight.data(), y.data(), workspace.data(), pool);
        return y;
      },
      [&](const std::vector<float>& y) {
        for (int64_t i = 0; i < std::ssize(y); ++i) {
          const int64_t pixel = i / s.filters, image = pixel / (s.height * s.width);
          const int64_t rows = std::abs(pixel / s.width % s.height - row), columns = std::abs(pixel % s.width - column);
          const bool finite = std::isfinite(y[static_cast<size_t>(i)]);
          const bool is_far = image > 0 || rows > 4 || columns > 4, is_near = image == 0 && rows <= 1 && columns <= 1;
          ASSERT_FALSE(is_far ? !finite : is_near && finite) << image << ' ' << rows << ' ' << columns;
        }
      });
}
}  // namespace
}  // namespace linnet

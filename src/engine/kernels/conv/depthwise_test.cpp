#include <algorithm>
#include <array>
#include <vector>
#include "engine/kernels/conv/convolution.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
// The first `kept` of each `channels` neighbors.
std::vector<float> first_channels(const std::vector<float>& x, int64_t channels, int64_t kept) {
  std::vector<float> result;
  for (auto at = x.begin(); at != x.end(); at += channels) result.insert(result.end(), at, at + kept);
  return result;
}

// Where pixels are a multiple of 2 KB apart, channels are copied first. A channel does not depend on those beside it,
// so that it is what it is among 511.
TEST(Depthwise, PixelsThatMeetTheSameSetsOfTheCache) {
  constexpr int64_t kChannels = 512, kTaps = 9;
  for (const auto& [images, height, width] : {std::array<int64_t, 3>{2, 3, 4}, {1, 4, 3}}) {
    const auto sizes = [&](int64_t channels) {
      return ConvolutionSizes{images, height, width, channels, channels, 3, 3, height, width, 1, 1, 1, channels};
    };
    const int64_t pixels = images * height * width;
    const std::vector<float> x = random_floats(pixels * kChannels, 1), dy = random_floats(pixels * kChannels, 2),
                             weight = random_floats(kChannels * kTaps, 3);
    const auto forward = [&](int64_t channels, ThreadPool& pool) {
      std::vector<float> y(static_cast<size_t>(pixels * channels));
      AlignedBytes workspace(convolution_workspace({sizes(channels)}, ConvolutionPass::kForward, pool.size()));
      convolution_forward({sizes(channels)}, first_channels(x, kChannels, channels).data(), weight.data(), y.data(),
          workspace.data(), pool);
      return y;
    };
    const auto input_gradient = [&](int64_t channels, ThreadPool& pool) {
      std::vector<float> dx(static_cast<size_t>(pixels * channels));
      AlignedBytes workspace(convolution_workspace({sizes(channels)}, ConvolutionPass::kInputGradient, pool.size()));
      convolution_input_gradient({sizes(channels)}, first_channels(dy, kChannels, channels).data(), weight.data(),
          dx.data(), workspace.data(), pool);
      return dx;
    };
    const auto weight_gradient = [&](int64_t channels, ThreadPool& pool) {
      std::vector<float> dweight(static_cast<size_t>(channels * kTaps));
      AlignedBytes workspace(convolution_workspace({sizes(channels)}, ConvolutionPass::kWeightGradient, pool.size()));
      convolution_weight_gradient({sizes(channels)}, first_channels(x, kChannels, channels).data(),
          first_channels(dy, kChannels, channels).data(), dweight.data(), workspace.data(), pool);
      return dweight;
    };
    ThreadPool one(1);
    for_every_isa([&](ThreadPool& pool) { return first_channels(forward(kChannels, pool), kChannels, 511); },
        [&](const auto& y) { expect_close(y, forward(511, one), 2e-5); });
    for_every_isa([&](ThreadPool& pool) { return first_channels(input_gradient(kChannels, pool), kChannels, 511); },
        [&](const auto& dx) { expect_close(dx, input_gradient(511, one), 2e-5); });
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> dweight = weight_gradient(kChannels, pool);
          dweight.resize(511 * kTaps);
          return dweight;
        },
        [&](const auto& dweight) { expect_close(dweight, weight_gradient(511, one), 5e-5); });
  }
}

// Rows and patches of results end at borders of every kind: odd and even sizes, images of one pixel, filters larger
// than the image, channels that leave a part of a vector, one filter for each channel or several.
TEST(Depthwise, FiltersAndImagesOfEverySize) {
  for (const auto& [images, height, width, groups] :
      {std::array<int64_t, 4>{2, 5, 7, 19}, {1, 8, 6, 33}, {3, 4, 9, 16}, {1, 1, 1, 5}, {2, 2, 13, 130}})
    for (const auto& [side, stride, depth, times] :
        {std::array<int64_t, 4>{3, 1, 1, 1}, {3, 2, 1, 1}, {5, 1, 1, 1}, {5, 2, 1, 1}, {7, 1, 1, 1}, {7, 2, 1, 2},
            {3, 1, 1, 3}, {3, 1, 4, 4}, {3, 2, 8, 8}, {5, 1, 3, 2}, {1, 1, 2, 2}}) {
      const int64_t out_height = (height - 1) / stride + 1, out_width = (width - 1) / stride + 1;
      const int64_t channels = groups * depth, filters = groups * times, taps = side * side;
      const int64_t pixels = images * height * width;
      const ConvolutionSizes s{
          images, height, width, channels, filters, side, side, out_height, out_width, stride, side / 2, 1, groups};
      const std::vector<float> x = random_floats(pixels * channels, 1),
                               weight = random_floats(filters * taps * depth, 2), bias = random_floats(filters, 3),
                               dy = random_floats(images * out_height * out_width * filters, 4);
      std::vector<float> expected;
      std::vector<double> gradient(x.size());
      for (int64_t n = 0, at = 0; n < images; ++n)
        for (int64_t i = 0; i < out_height; ++i)
          for (int64_t j = 0; j < out_width; ++j)
            for (int64_t o = 0; o < filters; ++o, ++at) {
              double sum = bias[static_cast<size_t>(o)];
              for (int64_t tap = 0; tap < taps; ++tap) {
                const int64_t row = stride * i - side / 2 + tap / side, column = stride * j - side / 2 + tap % side;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                for (int64_t c = 0; c < depth; ++c) {
                  const auto value =
                      static_cast<size_t>(((n * height + row) * width + column) * channels + o / times * depth + c);
                  const double w = weight[static_cast<size_t>((o * taps + tap) * depth + c)];
                  sum += x[value] * w;
                  gradient[value] += dy[static_cast<size_t>(at)] * w;
                }
              }
              expected.push_back(static_cast<float>(std::max(sum, 0.0)));
            }
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<float> y(expected.size());
            AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kForward, pool.size()));
            convolution_forward({s}, x.data(), weight.data(), y.data(), workspace.data(), pool,
                {.bias = bias.data(), .activation = GemmActivation::kRelu});
            return y;
          },
          [&](const auto& y) { expect_close(y, expected, 5e-5); });
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<float> dx(x.size());
            AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kInputGradient, pool.size()));
            convolution_input_gradient({s}, dy.data(), weight.data(), dx.data(), workspace.data(), pool);
            return dx;
          },
          [&](const auto& dx) { expect_close(dx, std::vector<float>(gradient.begin(), gradient.end()), 5e-5); });
    }
}
}  // namespace
}  // namespace linnet

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
      AlignedBytes workspace(convolution_workspace(sizes(channels), ConvolutionPass::kForward, pool.size()));
      convolution_forward(sizes(channels), first_channels(x, kChannels, channels).data(), weight.data(), y.data(),
                          workspace.data(), pool);
      return y;
    };
    const auto input_gradient = [&](int64_t channels, ThreadPool& pool) {
      std::vector<float> dx(static_cast<size_t>(pixels * channels));
      AlignedBytes workspace(convolution_workspace(sizes(channels), ConvolutionPass::kInputGradient, pool.size()));
      convolution_input_gradient(sizes(channels), first_channels(dy, kChannels, channels).data(), weight.data(),
                                 dx.data(), workspace.data(), pool);
      return dx;
    };
    const auto weight_gradient = [&](int64_t channels, ThreadPool& pool) {
      std::vector<float> dweight(static_cast<size_t>(channels * kTaps));
      AlignedBytes workspace(convolution_workspace(sizes(channels), ConvolutionPass::kWeightGradient, pool.size()));
      convolution_weight_gradient(sizes(channels), first_channels(x, kChannels, channels).data(),
                                  first_channels(dy, kChannels, channels).data(), dweight.data(), workspace.data(),
                                  pool);
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

// Patches of results end at borders of every kind: odd and even sizes, images of one pixel, channels that leave a part
// of a vector.
TEST(Depthwise, EveryOtherPixelOfImagesOfEverySize) {
  for (const auto& [images, height, width, channels] :
       {std::array<int64_t, 4>{2, 5, 7, 19}, {1, 8, 6, 33}, {3, 4, 9, 16}, {1, 1, 1, 5}, {2, 2, 13, 130}}) {
    const int64_t out_height = (height + 1) / 2, out_width = (width + 1) / 2;
    const ConvolutionSizes sizes{images,     height,    width, channels, channels, 3,       3,
                                 out_height, out_width, 2,     1,        1,        channels};
    const std::vector<float> x = random_floats(images * height * width * channels, 1),
                             weight = random_floats(channels * 9, 2), bias = random_floats(channels, 3);
    std::vector<float> expected;
    for (int64_t n = 0; n < images; ++n)
      for (int64_t i = 0; i < out_height; ++i)
        for (int64_t j = 0; j < out_width; ++j)
          for (int64_t c = 0; c < channels; ++c) {
            double sum = bias[static_cast<size_t>(c)];
            for (int64_t tap = 0; tap < 9; ++tap) {
              const int64_t row = 2 * i - 1 + tap / 3, column = 2 * j - 1 + tap % 3;
              if (row < 0 || row >= height || column < 0 || column >= width) continue;
              sum += static_cast<double>(x[static_cast<size_t>(((n * height + row) * width + column) * channels + c)]) *
                     weight[static_cast<size_t>(c * 9 + tap)];
            }
            expected.push_back(static_cast<float>(std::max(sum, 0.0)));
          }
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> y(expected.size());
          AlignedBytes workspace(convolution_workspace(sizes, ConvolutionPass::kForward, pool.size()));
          convolution_forward(sizes, x.data(), weight.data(), y.data(), workspace.data(), pool,
                              {.bias = bias.data(), .activation = GemmActivation::kRelu});
          return y;
        },
        [&](const auto& y) { expect_close(y, expected, 2e-5); });
  }
}

}  // namespace
}  // namespace linnet

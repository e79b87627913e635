#include <algorithm>
#include <cmath>
#include <random>
#include "engine/kernels/quantized/products.h"
#include "quantized_testing.h"

namespace linnet {
namespace {
// A convolution of the definition, to compare with: codes in, sums of codes out.
struct ConvolutionCase {
  Int8ConvolutionSizes sizes;
  int64_t filters;
  StaticRounding rounding;
  int8_t code_range;  // of weights: 64 fits pairs, above it any_weight
};

class ConvolutionCheck {
 public:
  explicit ConvolutionCheck(const ConvolutionCase& c)
      : c_(c), shape_{WeightFormat::kInt8, c.filters, c.sizes.patch()},
        packed_(shape_.format, shape_.rows, shape_.columns,
            std::vector<float>(static_cast<size_t>(shape_.rows * shape_.columns))),
        codes_(static_cast<size_t>(shape_.rows * shape_.columns)) {
    std::mt19937 random(11);
    for (int8_t& code : codes_)
      code =
          static_cast<int8_t>(static_cast<int>(random() % (2U * static_cast<unsigned>(c.code_range))) - c.code_range);
    for (int64_t o = 0; o < c.filters; ++o) {
      const std::span row(codes_.data() + o * shape_.columns, static_cast<size_t>(shape_.columns));
      const float scale = scale_of(o);
      pack_row(shape_, o, row.data(), &scale, packed_.memory.data());
      reinterpret_cast<int32_t*>(packed_.memory.data() + shape_.sums_offset())[o] =
          c.rounding.zero * std::accumulate(row.begin(), row.end(), 0);
    }
  }
  static float scale_of(int64_t filter) { return 0.25F / static_cast<float>(1 + filter % 3); }
  PackedWeight weight() { return packed_.weight(); }

  // Less the zero, where the image ends.
  int64_t code(const std::vector<uint8_t>& x, int64_t n, int64_t i, int64_t j, int64_t channel) const {
    const auto& s = c_.sizes;
    if (i < 0 || i >= s.height || j < 0 || j >= s.width) return 0;
    return x[static_cast<size_t>(((n * s.height + i) * s.width + j) * s.channels + channel)] - c_.rounding.zero;
  }

  std::vector<int64_t> sums(const std::vector<uint8_t>& x) const {
    const auto& [vertical, horizontal] = std::pair(c_.sizes.vertical, c_.sizes.horizontal);
    std::vector<int64_t> sums;
    for (int64_t n = 0; n < c_.sizes.images; ++n)
      for (int64_t i = 0; i < c_.sizes.out_height(); ++i)
        for (int64_t j = 0; j < c_.sizes.out_width(); ++j)
          for (int64_t o = 0; o < c_.filters; ++o) {
            int64_t sum = 0, column = o * shape_.columns;
            for (int64_t r = 0; r < vertical.size; ++r)
              for (int64_t s = 0; s < horizontal.size; ++s)
                for (int64_t channel = 0; channel < c_.sizes.channels; ++channel)
                  sum += code(x, n, i * vertical.stride + r * vertical.dilation - vertical.before,
                             j * horizontal.stride + s * horizontal.dilation - horizontal.before, channel) *
                         codes_[static_cast<size_t>(column++)];
            sums.push_back(sum);
          }
    return sums;
  }

 private:
  const ConvolutionCase& c_;
  const PackedShape shape_;
  Packed packed_;
  std::vector<int8_t> codes_;
};

// Windows that differ between the axes, and zeros around the image that differ between the ends; windows that are read
// where they lie and such that are copied; one panel of filters to five; any weights.
const ConvolutionCase kConvolutions[] = {
    {{2, 9, 11, 5, {3, 2, 1, 1, 0}, {2, 1, 3, 2, 4}}, 21, {.scale = 0.03F, .zero = 37, .any_weight = true}, 127},
    {{2, 9, 11, 5, {3, 2, 1, 1, 0}, {2, 1, 3, 2, 4}}, 21, {.scale = 0.03F, .zero = 128}, 64},
    {{3, 8, 8, 16, {3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 16, {.scale = 0.03F, .zero = 128, .least = 1}, 64},
    {{2, 13, 7, 32, {3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}}, 64, {.scale = 0.02F, .zero = 0}, 64},
    {{1, 7, 7, 64, {1, 2, 1, 0, 0}, {1, 2, 1, 0, 0}}, 48, {.scale = 0.02F, .zero = 0}, 64},
    {{1, 40, 37, 3, {7, 2, 1, 3, 3}, {7, 2, 1, 3, 3}}, 70, {.scale = 0.03F, .zero = 128, .least = 1}, 64},
    {{5, 4, 4, 8, {1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}}, 33, {.scale = 0.03F, .zero = 0}, 64},
};

void convolve(const Int8Convolution& args, const PackedWeight& weight, int threads) {
  ThreadPool pool(threads);
  AlignedBytes workspace(int8_convolution_workspace(args.sizes, weight.shape.rows, threads));
  int8_convolution(args, weight, workspace.data(), pool);
}

TEST(QuantizedGemm, ConvolutionsOfBytesAreExactInEveryWay) {
  for (const ConvolutionCase& c : kConvolutions) {
    ConvolutionCheck check(c);
    const auto x = random_floats(c.sizes.images * c.sizes.height * c.sizes.width * c.sizes.channels, 4);
    std::vector<uint8_t> codes(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      codes[i] = static_cast<uint8_t>(
          std::clamp<int64_t>(std::lrintf(x[i] / c.rounding.scale) + c.rounding.zero, c.rounding.least, 255));
    const std::vector<int64_t> sums = check.sums(codes);
    for_every_way([&] {
      for (const int threads : {1, 2})
        for (const bool from_codes : {false, true}) {
          std::vector<float> y(sums.size(), kNan);
          const Int8Convolution args{.sizes = c.sizes,
              .x = from_codes ? nullptr : x.data(),
              .x_codes = from_codes ? codes.data() : nullptr,
              .rounding = c.rounding,
              .y = y.data()};
          convolve(args, check.weight(), threads);
          for (size_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(y[i], static_cast<float>(sums[i]) *
                                (c.rounding.scale * ConvolutionCheck::scale_of(static_cast<int64_t>(i) % c.filters)))
                << i;
        }
    });
  }
}

// relu(sum * scale + bias + residual), as floats and as codes, with both kinds of residuals.
TEST(QuantizedGemm, ConvolutionsOfBytesRoundTheirResults) {
  for (const ConvolutionCase& c : kConvolutions) {
    ConvolutionCheck check(c);
    const auto count = static_cast<size_t>(c.sizes.images * c.sizes.height * c.sizes.width * c.sizes.channels);
    std::vector<uint8_t> x(count);
    for (size_t i = 0; i < count; ++i) x[i] = static_cast<uint8_t>(std::max<size_t>(1, i * i * 7 % 256));
    const std::vector<int64_t> sums = check.sums(x);
    const auto scale = random_floats(c.filters, 5), bias = random_floats(c.filters, 6);
    const auto added = random_floats(static_cast<int64_t>(sums.size()), 7);
    std::vector<uint8_t> added_codes(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) added_codes[i] = static_cast<uint8_t>(i * 13 % 256);
    const StaticRounding of_added{.scale = 0.05F, .zero = 128}, of_result{.scale = 0.4F, .zero = 3, .least = 2};
    for_every_way([&] {
      for (const bool codes_added : {false, true}) {
        std::vector<float> y(sums.size(), kNan);
        std::vector<uint8_t> y_codes(sums.size());
        Int8Convolution args{.sizes = c.sizes, .x_codes = x.data(), .rounding = c.rounding};
        args.scale = scale.data(), args.bias = bias.data(), args.relu = true;
        args.residual = codes_added ? nullptr : added.data();
        args.residual_codes = codes_added ? added_codes.data() : nullptr;
        args.residual_rounding = of_added;
        args.y = y.data();
        convolve(args, check.weight(), 2);
        args.y = nullptr, args.y_codes = y_codes.data(), args.y_rounding = of_result;
        convolve(args, check.weight(), 1);
        for (size_t i = 0; i < sums.size(); ++i) {
          const auto o = static_cast<int64_t>(i) % c.filters;
          const double residual = codes_added ? 0.05 * (added_codes[i] - 128) : added[i];
          const double value = static_cast<double>(sums[i]) * c.rounding.scale * ConvolutionCheck::scale_of(o) *
                                   scale[static_cast<size_t>(o)] +
                               bias[static_cast<size_t>(o)] + residual;
          const double rectified = std::max(0.0, value);
          ASSERT_NEAR(y[i], rectified, 1e-5 * (1 + std::abs(value))) << i;
          // A step apart where the value is in the middle of two.
          ASSERT_NEAR(y_codes[i], std::clamp(rectified / 0.4 + 3, 2.0, 255.0), 0.501) << i;
        }
      }
    });
  }
}

// An image has the same bits alone and among others, whose largest magnitudes are not its own.
TEST(QuantizedGemm, ConvolutionsFindAScaleForEachImage) {
  for (const int zero : {0, 128}) {
    constexpr Int8ConvolutionSizes kSizes{4, 10, 9, 16, {3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}};
    constexpr int64_t kFilters = 24, kImage = 10 * 9 * 16, kResult = 10 * 9 * kFilters;
    const ConvolutionCase c{kSizes, kFilters, {.scale = 1, .zero = zero}, 64};
    ConvolutionCheck check(c);
    auto x = random_floats(4 * kImage, 8);
    for (size_t i = 0; i < x.size(); ++i) {
      if (zero == 0) x[i] = std::abs(x[i]);
      x[i] *= static_cast<float>(1 + i / kImage * 10);
    }
    x[2 * kImage + 5] = kNan;
    std::fill(x.begin() + 3 * kImage, x.end(), 0.0F);
    for_every_way([&] {
      std::vector<float> y(4 * kResult), alone(kResult);
      Int8Convolution args{.sizes = kSizes, .x = x.data(), .rounding = {.scale = 0, .zero = zero}, .y = y.data()};
      convolve(args, check.weight(), 2);
      args.sizes.images = 1, args.x = x.data() + kImage, args.y = alone.data();
      convolve(args, check.weight(), 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + kResult));
      EXPECT_TRUE(std::all_of(y.begin() + 2 * kResult, y.begin() + 3 * kResult, [](float v) { return v != v; }));
      EXPECT_TRUE(std::all_of(y.begin() + 3 * kResult, y.end(), [](float v) { return v == 0; }));
      // Against the sums of the codes that the largest magnitude gives.
      const float most = *std::max_element(
          x.begin() + kImage, x.begin() + 2 * kImage, [](float a, float b) { return std::abs(a) < std::abs(b); });
      const float scale = std::abs(most) / static_cast<float>(255 - zero);
      double error = 0, size = 0;
      std::vector<uint8_t> codes(4 * kImage);
      for (size_t i = 0; i < kImage; ++i)
        codes[kImage + i] = static_cast<uint8_t>(std::lrintf(x[kImage + i] / scale) + zero);
      const std::vector<int64_t> sums = check.sums(codes);
      for (size_t i = 0; i < kResult; ++i) {
        const double expected = static_cast<double>(sums[kResult + i]) * scale *
                                ConvolutionCheck::scale_of(static_cast<int64_t>(i) % kFilters);
        error += std::pow(alone[i] - expected, 2), size += expected * expected;
      }
      EXPECT_LT(std::sqrt(error / size), 1e-3);
    });
  }
}
}  // namespace
}  // namespace linnet

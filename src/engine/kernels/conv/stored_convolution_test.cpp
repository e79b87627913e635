#include <algorithm>
#include <cmath>
#include <string>
#include "engine/kernels/conv/convolution.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
// Images of which not all are one part, of each method.
struct Case {
  const char* name;
  ConvolutionSizes sizes;
};
const Case kCases[] = {
    {"product", {5, 72, 64, 32, 40, 1, 1, 72, 64}},
    {"depthwise", {5, 72, 64, 32, 32, 3, 3, 72, 64, 1, 1, 1, 32}},
    {"implicit", {5, 72, 64, 24, 40, 3, 3, 72, 64, 1, 1}},
    {"winograd 4x4", {5, 72, 64, 32, 32, 3, 3, 72, 64, 1, 1}},
    {"winograd", {5, 1842, 2, 32, 32, 3, 3, 1842, 2, 1, 1}},
};

struct Data {
  explicit Data(const ConvolutionSizes& s)
      : x(to_bf16(random_floats(s.images * s.height * s.width * s.channels, 1))),
        dy(to_bf16(random_floats(s.images * s.out_height * s.out_width * s.filters, 2))),
        residual(to_bf16(random_floats(std::ssize(dy), 3))),
        weight(random_floats(s.filters * s.taps() * s.group_channels(), 4)), bias(random_floats(s.filters, 5)) {}
  std::vector<Bfloat16> x, dy, residual;
  std::vector<float> weight, bias;
};

// Each image's results do not depend on which images are beside it, so that only the last rounding differs.
void expect_rounded(const std::vector<float>& result, const std::vector<float>& exact) {
  ASSERT_EQ(result.size(), exact.size());
  EXPECT_TRUE(same_bits(result, rounded_to_bf16(exact)));
}

TEST(Convolution, ImagesInBf16AreWidenedPartByPart) {
  for (const auto& [name, s] : kCases) {
    SCOPED_TRACE(name);
    EXPECT_EQ(enum_names(ConvolutionMethod{})[static_cast<size_t>(convolution_method(s))], std::string(name));
    const Data data(s);
    const Convolution stored{.sizes = s, .x_bf16 = true, .y_bf16 = true, .residual_bf16 = true};
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<Bfloat16> y(data.dy.size());
          AlignedBytes workspace(convolution_workspace(stored, ConvolutionPass::kForward, pool.size()));
          convolution_forward(stored, data.x.data(), data.weight.data(), y.data(), workspace.data(), pool,
              {.bias = data.bias.data(), .activation = GemmActivation::kRelu}, data.residual.data(), nullptr);
          return to_floats(y);
        },
        [&](const std::vector<float>& result) {
          ThreadPool pool(1);
          const std::vector<float> x = to_floats(data.x), residual = to_floats(data.residual);
          std::vector<float> y(data.dy.size());
          AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kForward, 1));
          convolution_forward({s}, x.data(), data.weight.data(), y.data(), workspace.data(), pool,
              {.bias = data.bias.data(), .residual = residual.data(), .activation = GemmActivation::kRelu});
          expect_rounded(result, y);
        });
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<Bfloat16> dx(data.x.size());
          AlignedBytes workspace(convolution_workspace(stored, ConvolutionPass::kInputGradient, pool.size()));
          convolution_input_gradient(stored, data.dy.data(), data.weight.data(), dx.data(), workspace.data(), pool);
          return to_floats(dx);
        },
        [&](const std::vector<float>& result) {
          ThreadPool pool(1);
          const std::vector<float> dy = to_floats(data.dy);
          std::vector<float> dx(data.x.size());
          AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kInputGradient, 1));
          convolution_input_gradient({s}, dy.data(), data.weight.data(), dx.data(), workspace.data(), pool);
          expect_rounded(result, dx);
        });
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<float> dweight(data.weight.size());
          AlignedBytes workspace(convolution_workspace(stored, ConvolutionPass::kWeightGradient, pool.size()));
          convolution_weight_gradient(stored, data.x.data(), data.dy.data(), dweight.data(), workspace.data(), pool);
          return dweight;
        },
        [&](const std::vector<float>& result) {
          ThreadPool pool(1);
          const std::vector<float> x = to_floats(data.x), dy = to_floats(data.dy);
          std::vector<float> dweight(data.weight.size());
          AlignedBytes workspace(convolution_workspace({s}, ConvolutionPass::kWeightGradient, 1));
          convolution_weight_gradient({s}, x.data(), dy.data(), dweight.data(), workspace.data(), pool);
          // Sums of about 20,000 products, of which parts are added apart.
          for (size_t i = 0; i < dweight.size(); ++i) EXPECT_NEAR(result[i], dweight[i], 1e-2);
        });
  }
}

// Filters are rounded to bf16 before, so that direct sums of pairs are nearly exact. Minimal filtering rounds what it
// has transformed: pixels and weights alike, and the way back makes these errors larger.
void expect_sums_of_pairs(
    const ConvolutionSizes& s, bool is_rounded, const std::vector<float>& result, const std::vector<float>& due) {
  ASSERT_EQ(result.size(), due.size());
  if (convolution_method(s) == ConvolutionMethod::kImplicit || s.channels + s.filters == 32) {
    const float step = is_rounded ? 1.0F / 256 : 1e-5F;
    for (size_t i = 0; i < due.size(); ++i) ASSERT_NEAR(result[i], due[i], 1e-2 + step * std::abs(due[i])) << i;
    return;
  }
  double squares = 0, differences = 0, largest = 0;
  for (size_t i = 0; i < due.size(); ++i) {
    const double difference = std::abs(static_cast<double>(result[i]) - due[i]);
    squares += static_cast<double>(due[i]) * due[i], differences += difference * difference;
    largest = std::max(largest, difference);
  }
  const double size = std::sqrt(squares / static_cast<double>(due.size()));
  EXPECT_LT(std::sqrt(differences / static_cast<double>(due.size())), 0.006 * size);
  EXPECT_LT(largest, 0.03 * size);
}

// Products of bf16, of images that are stored so or as fp32: pairs of channels, of filters and of results; rows of an
// odd number of results, strides, dilation, paddings, several parts; tiles of minimal filtering in odd numbers.
TEST(Convolution, ProductsOfPairs) {
  for (const ConvolutionSizes& s :
      {ConvolutionSizes{5, 72, 64, 24, 40, 3, 3, 72, 64, 1, 1}, {5, 72, 64, 32, 32, 3, 3, 72, 64, 1, 1},
          {1, 7, 5, 16, 48, 3, 3, 7, 5, 1, 1}, {2, 8, 9, 16, 16, 3, 3, 8, 9, 1, 1},
          {3, 13, 11, 48, 16, 3, 3, 15, 13, 1, 2}, {5, 9, 9, 32, 80, 3, 3, 7, 7, 1, 0},
          {2, 9, 7, 6, 18, 3, 3, 5, 4, 2, 1}, {1, 8, 11, 16, 34, 5, 2, 4, 12, 2, 2},
          {1, 12, 13, 130, 4, 3, 3, 8, 9, 1, 0, 2}, {1, 6, 5, 200, 8, 3, 3, 6, 5, 1, 1},  // sums in two blocks
          {2, 13, 11, 3, 32, 5, 5, 7, 6, 2, 2}, {3, 6, 5, 8, 10, 1, 1, 3, 3, 2, 0}}) {
    SCOPED_TRACE(std::to_string(s.channels) + " to " + std::to_string(s.filters));
    const Data data(s);
    const std::vector<float> x = to_floats(data.x), dy = to_floats(data.dy), weight = rounded_to_bf16(data.weight);
    for (const bool bf16 : {true, false}) {
      const Convolution stored{.sizes = s, .x_bf16 = bf16, .y_bf16 = bf16, .bf16_products = true};
      const StoredFloats from = bf16 ? StoredFloats(data.x.data()) : StoredFloats(x.data());
      const StoredFloats slopes = bf16 ? StoredFloats(data.dy.data()) : StoredFloats(dy.data());
      const auto run = [&](ThreadPool& pool, ConvolutionPass pass) {
        AlignedBytes workspace(convolution_workspace(stored, pass, pool.size()));
        std::vector<float> result(pass == ConvolutionPass::kForward         ? dy.size()
                                  : pass == ConvolutionPass::kInputGradient ? x.size()
                                                                            : weight.size());
        std::vector<Bfloat16> rounded(result.size());
        const MutableStoredFloats to = bf16 ? MutableStoredFloats(rounded.data()) : MutableStoredFloats(result.data());
        if (pass == ConvolutionPass::kForward)
          convolution_forward(
              stored, from, weight.data(), to, workspace.data(), pool, {.bias = data.bias.data()}, nullptr, nullptr);
        if (pass == ConvolutionPass::kInputGradient)
          convolution_input_gradient(stored, slopes, weight.data(), to, workspace.data(), pool);
        if (pass == ConvolutionPass::kWeightGradient)
          convolution_weight_gradient(stored, from, slopes, result.data(), workspace.data(), pool);
        return bf16 && pass != ConvolutionPass::kWeightGradient ? to_floats(rounded) : result;
      };
      const auto exact = [&](ConvolutionPass pass) {
        ThreadPool pool(1);
        AlignedBytes workspace(convolution_workspace({s}, pass, 1));
        std::vector<float> result(run(pool, pass).size());
        if (pass == ConvolutionPass::kForward)
          convolution_forward(
              {s}, x.data(), weight.data(), result.data(), workspace.data(), pool, {.bias = data.bias.data()});
        if (pass == ConvolutionPass::kInputGradient)
          convolution_input_gradient({s}, dy.data(), weight.data(), result.data(), workspace.data(), pool);
        if (pass == ConvolutionPass::kWeightGradient)
          convolution_weight_gradient({s}, x.data(), dy.data(), result.data(), workspace.data(), pool);
        return result;
      };
      for (const auto pass :
          {ConvolutionPass::kForward, ConvolutionPass::kInputGradient, ConvolutionPass::kWeightGradient})
        for_every_isa([&](ThreadPool& pool) { return run(pool, pass); },
            [&](const std::vector<float>& result) {
              expect_sums_of_pairs(s, bf16 && pass != ConvolutionPass::kWeightGradient, result, exact(pass));
            });
    }
  }
}

// Filters that were packed before, images in fp32 and results in bf16, no images at all.
TEST(Convolution, PackedFiltersMixedTypesAndNothing) {
  ThreadPool pool(2);
  ConvolutionSizes s = kCases[3].sizes;
  const Data data(s);
  const std::vector<float> x = to_floats(data.x);
  std::vector<float> y(data.dy.size()), packed(static_cast<size_t>(packed_filter_floats(s)) + 16);
  AlignedBytes own(convolution_workspace({s}, ConvolutionPass::kForward, 2));
  convolution_forward({s}, x.data(), data.weight.data(), y.data(), own.data(), pool);
  float* const aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64 / sizeof(float);
  pack_convolution_filters(s, ConvolutionPass::kForward, data.weight.data(), aligned, own.data(), pool);

  const Convolution stored{.sizes = s, .y_bf16 = true, .packed = true};
  AlignedBytes workspace(convolution_workspace(stored, ConvolutionPass::kForward, 2));
  std::vector<Bfloat16> rounded(data.dy.size());
  convolution_forward(stored, x.data(), nullptr, rounded.data(), workspace.data(), pool, {}, nullptr, aligned);
  expect_rounded(to_floats(rounded), y);

  s.images = 0;
  std::vector<float> dweight(data.weight.size(), 7);
  const Convolution nothing{.sizes = s, .x_bf16 = true, .y_bf16 = true};
  convolution_weight_gradient(nothing, data.x.data(), data.dy.data(), dweight.data(), workspace.data(), pool);
  EXPECT_EQ(std::ranges::count(dweight, 0.0f), std::ssize(dweight));
}
}  // namespace
}  // namespace linnet

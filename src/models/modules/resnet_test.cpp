#include "models/modules/resnet.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "base/error.h"
#include "models/nn/activation_observer.h"
#include "models/nn/forward.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
namespace {
TEST(ResNet, CountsOfParametersAreThoseOfThePaper) {
  const auto count = [](int64_t depth, ImageShape images) {
    const ResNet model(ResNetConfig{.depth = depth, .images = images});
    int64_t sum = 0;
    const ParameterLayout layout(model);
    for (const ParameterSlot& slot : layout.trained()) sum += slot.spec.shape.elements();
    return sum;
  };
  EXPECT_EQ(count(18, {224, 224, 3, 1000}), 11'689'512);
  EXPECT_EQ(count(50, {224, 224, 3, 1000}), 25'557'032);
}

// A network for small images with random weights, whose norms are not the identity.
class QuantizedResNet : public ::testing::Test {
 protected:
  static constexpr int64_t kSide = 16, kClasses = 10;

  std::vector<float> logits(
      const std::vector<uint8_t>& images, const WeightQuantization& quantization, int threads = 1) {
    const int64_t batch = std::ssize(images) / (kSide * kSide * 3);
    Forward forward(net_, {[&](Trace& trace) {
      const Tensor x = trace.input("images", {DType::kU8, {batch, kSide, kSide, 3}});
      trace.graph().output("logits", net_(x));
    }},
        ForwardOptions{.threads = threads, .quantization = quantization});
    quantized_ = forward.layout().quantized().size();
    forward.load([&](const ParameterTarget& target) {
      for (const ParameterSlot& slot : forward.layout().parameters()) {
        const ParameterSpec& spec = slot.spec;
        const std::span<float> values{target.flat + slot.offset, static_cast<size_t>(spec.shape.elements())};
        initialize(spec.initializer, spec.name, 1, spec.shape, values);
        for (size_t i = 0; spec.shape.rank() == 1 && i < values.size(); ++i)
          values[i] += 0.1F * static_cast<float>(i % 3);
        target.finish(slot);
      }
    });
    forward.set("images", images);
    const auto found = forward.run().output("logits");
    return {found.begin(), found.end()};
  }

  static std::vector<uint8_t> images(int64_t count) {
    std::vector<uint8_t> images(static_cast<size_t>(count * kSide * kSide * 3));
    for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(i * i * 31 / 7 % 251);
    return images;
  }

  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) error += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
    return std::sqrt(error / size);
  }

  WeightQuantization calibrated(const std::vector<uint8_t>& examples) {
    const auto observer = std::make_shared<ActivationObserver>();
    logits(examples, {.observer = observer});
    WeightQuantization quantization = parse_quantization("int8");
    quantization.input_scales = observer->scales(CalibrationMethod::kMinMax);
    return quantization;
  }

  ResNet net_{{.depth = 8, .images = {kSide, kSide, 3, kClasses}}};
  size_t quantized_ = 0;
};

TEST_F(QuantizedResNet, IsNearlyTheSameInInt8) {
  const std::vector<uint8_t> some = images(6);
  const auto exact = logits(some, {});
  EXPECT_LT(distance(logits(some, parse_quantization("int8")), exact), 0.04);
  EXPECT_EQ(quantized_, 7U) << "all but the first and the narrowest shortcut, with 27 and 16 numbers a window";
  const auto fixed = logits(some, calibrated(some));
  EXPECT_LT(distance(fixed, exact), 0.04);
  EXPECT_GT(distance(fixed, exact), 0);
}

// An image has the same bits beside any others, on any number of threads.
TEST_F(QuantizedResNet, BitsDependOnTheImageAlone) {
  const std::vector<uint8_t> some = images(5);
  std::vector<uint8_t> others(some.size(), 250);
  constexpr int64_t kImage = kSide * kSide * 3, kWhich = 3;
  std::copy_n(some.begin() + kWhich * kImage, kImage, others.begin() + kWhich * kImage);
  for (const WeightQuantization& quantization : {parse_quantization("int8"), calibrated(some)}) {
    const auto one = logits(some, quantization, 1), other = logits(others, quantization, 2);
    EXPECT_EQ(logits(some, quantization, 3), one);
    EXPECT_TRUE(std::equal(
        one.begin() + kWhich * kClasses, one.begin() + (kWhich + 1) * kClasses, other.begin() + kWhich * kClasses));
    EXPECT_NE(one, other);
  }
}

// Each convolution that int8 quantizes has a step to train.
TEST(ResNet, TrainsWithTheRoundingOfStaticInt8) {
  constexpr int64_t kSide = 16, kClasses = 10;
  ResNet trained{{.depth = 8, .images = {kSide, kSide, 3, kClasses}}};
  EXPECT_EQ(train_quantized(trained), 7);
  EXPECT_EQ(train_quantized(trained), 0) << "once";
  int64_t steps = 0;
  for (const ParameterSpec& spec : trained.parameters()) steps += !weight_of_input_step(spec.name).empty();
  EXPECT_EQ(steps, 7);
}

TEST(ResNet, OtherDepthsAreRefused) { EXPECT_THROW(ResNet(ResNetConfig{.depth = 19}), Error); }
}  // namespace
}  // namespace linnet

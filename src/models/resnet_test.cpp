#include "models/resnet.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/parameter_layout.h"

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

TEST(ResNet, OtherDepthsAreRefused) { EXPECT_THROW(ResNet(ResNetConfig{.depth = 19}), Error); }

}  // namespace
}  // namespace linnet

// What the options of a model in use do to its configuration.
#include "tasks/inference.h"
#include <gtest/gtest.h>
#include "temporary_folder.h"

namespace linnet {
namespace {
// What evaluates and scores with a trainer's plans multiplies as what embeds (models/nn/forward.h).
TEST(Inference, PackedWeightsDecideThePrecisionOfProducts) {
  testing::TemporaryFolder folder;
  const auto products = [&](const std::string& quantize, const std::string& device) {
    Config config;
    InferenceOptions options;
    options.quantize = quantize, options.device = device;
    apply(options, config, folder.path());
    return config.train.precision + " " + config.train.attention_precision + " " + config.train.storage;
  };
  const std::string plain = products("", "cpu");
  EXPECT_EQ(plain, "fp32 same auto");
  EXPECT_EQ(products("int8-weights", "cpu"), plain);
  EXPECT_EQ(products("bf16", "cpu"), "bf16 same fp32");
  EXPECT_EQ(products("bf16", "cuda"), "bf16 same auto");
  EXPECT_EQ(products("int8", "cpu"), "fp32 bf16 auto");
}
}  // namespace
}  // namespace linnet

#include <gtest/gtest.h>
#include "golden_testing.h"
#include "models/families/transformer_family.h"
#include "t5_testing.h"

namespace linnet {
namespace {
class T5Folder : public testing::TestWithParam<const char*> {
 protected:
  T5Folder() : golden(GetParam()), t5(golden.model.as<T5>()) {}
  PretrainedGolden golden;
  T5& t5;
};

TEST_P(T5Folder, HasTheLogitsOfTransformers) {
  golden.check_output("logits", [&](Trace& trace) {
    const auto ids = [&](const char* name) { return trace.input(name, {DType::kI32, golden.shape(name)}); };
    return t5.logits(t5.hidden(ids("source"), ids("source_lengths"), ids("target_in")));
  });
}

TEST_P(T5Folder, HasItsLossAndGradients) {
  const Shape &source = golden.shape("source"), &target = golden.shape("target_in");
  const LossFunction loss = [&](Trace& trace) { return t5_loss(t5, trace, source[0], source[1], target[1]); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
}

TEST_P(T5Folder, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, T5Folder, testing::Values("t5", "t5_gated", "t5_unscaled", "mt5"),
    [](const auto& info) { return std::string(info.param); });

TEST(T5Config, SurvivesTheFile) {
  T5Config config{.vocab_size = 40, .width = 8, .heads = 2, .head_size = 6, .hidden = 20, .encoder_layers = 3};
  config.decoder_layers = 1, config.buckets = 8, config.max_distance = 20;
  const auto& family = find_family_as<T5Family>("t5");
  for (const bool gated : {false, true}) {
    config.gated = gated, config.activation = gated ? Activation::kGeluTanh : Activation::kSilu;
    config.tied_head = config.scaled_head = !gated;
    const std::string text = family.write(config, ModelHead::kTokens).dump();
    EXPECT_EQ(family.write(family.read(ConfigFile::parse(text, "config.json")), ModelHead::kTokens).dump(), text);
  }
}
}  // namespace
}  // namespace linnet

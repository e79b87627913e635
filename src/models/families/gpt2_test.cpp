#include <gtest/gtest.h>
#include "golden_testing.h"
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
class Gpt2 : public testing::TestWithParam<const char*> {
 protected:
  Gpt2() : golden(GetParam()), gpt(golden.model.as<TextDecoder>()) {}
  PretrainedGolden golden;
  TextDecoder& gpt;
};

TEST_P(Gpt2, HasTheLogitsOfTransformers) {
  golden.check_output("logits", [&](Trace& trace) {
    const Tensor hidden = gpt(trace.input("tokens", {DType::kI32, golden.shape("tokens")}));
    return matmul(hidden, gpt.head_weight(), false, true);
  });
}

TEST_P(Gpt2, HasItsLossAndGradients) {
  const Shape& shape = golden.shape("tokens");
  const LossFunction loss = [&](Trace& trace) { return causal_loss(gpt, trace, shape[0], shape[1]); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
}

TEST_P(Gpt2, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, Gpt2, testing::Values("gpt2", "gpt2_options", "gpt2_bare"),
    [](const auto& info) { return std::string(info.param); });

TEST(Gpt2Config, SurvivesTheFile) {
  const DecoderConfig config{.vocab_size = 40,
      .max_seq_len = 12,
      .width = 8,
      .heads = 2,
      .layers = 3,
      .hidden = 24,
      .dropout = 0.2,
      .embedding_dropout = 0.3,
      .attention_dropout = 0,
      .activation = Activation::kSilu,
      .norms = NormKind::kBare,
      .epsilon = 1e-6,
      .tied_head = false};
  const std::string text = decoder_config_file("gpt2", config).dump();
  const DecoderConfig read = decoder_config(ConfigFile::parse(text, "config.json"));
  EXPECT_EQ(decoder_config_file("gpt2", read).dump(), text);
  EXPECT_EQ(read.norms, NormKind::kBare);
  EXPECT_EQ(read.hidden, 24);
  EXPECT_EQ(read.embedding_dropout, 0.3);
}
}  // namespace
}  // namespace linnet

#include "models/families/gpt2.h"

#include <gtest/gtest.h>

#include "models/families/golden_testing.h"

namespace linnet {
namespace {

class Gpt2 : public testing::TestWithParam<const char*> {
 protected:
  Gpt2() : golden(GetParam()), gpt(golden.model.as<Gpt>()) {}
  PretrainedGolden golden;
  Gpt& gpt;
};

TEST_P(Gpt2, HasTheLogitsOfTransformers) {
  golden.check_output("logits", [&](Trace& trace) {
    const Tensor hidden = gpt(trace.input("tokens", {DType::kI32, golden.shape("tokens")}));
    return matmul(hidden, gpt.head_weight(), false, true);
  });
}

TEST_P(Gpt2, HasItsLossAndGradients) {
  const Shape& shape = golden.shape("tokens");
  const LossFunction loss = [&](Trace& trace) { return gpt_loss(gpt, trace, shape[0], shape[1]); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
}

TEST_P(Gpt2, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, Gpt2, testing::Values("gpt2", "gpt2_options", "gpt2_bare"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Gpt2Config, SurvivesTheFile) {
  const GptConfig config{.vocab_size = 40,
                         .max_seq_len = 12,
                         .width = 8,
                         .heads = 2,
                         .layers = 3,
                         .dropout = 0.2,
                         .embedding_dropout = 0.3,
                         .attention_dropout = 0,
                         .hidden = 24,
                         .activation = Activation::kSilu,
                         .epsilon = 1e-6,
                         .affine_norms = false,
                         .tied_head = false};
  const GptConfig read = gpt2_config(ConfigFile::parse(gpt2_config_file(config).dump(), "config.json"));
  EXPECT_EQ(gpt2_config_file(read).dump(), gpt2_config_file(config).dump());
}

}  // namespace
}  // namespace linnet

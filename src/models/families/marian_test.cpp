#include <gtest/gtest.h>
#include "golden_testing.h"
#include "models/families/generation_config.h"
#include "models/families/transformer_family.h"
#include "models/modules/encoder_decoder.h"

namespace linnet {
namespace {
class Marian : public testing::TestWithParam<const char*> {};

TEST_P(Marian, AgreesWithTransformers) {
  PretrainedGolden golden(GetParam());
  auto& model = golden.model.as<Transformer>();
  golden.check_output("logits", [&](Trace& trace) {
    const auto input = [&](const char* name) { return trace.input(name, {DType::kI32, golden.shape(name)}); };
    return model(input("source"), input("source_lengths"), input("target_in"), input("target_lengths"));
  });
  const Shape &source = golden.shape("source"), &target = golden.shape("target_in");
  const TranslationSizes sizes{source[0], source[1], target[1]};
  const LossFunction loss = [&](Trace& trace) { return translation_loss(model, trace, sizes, 0); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
  golden.check_saving();
}

INSTANTIATE_TEST_SUITE_P(Folders, Marian,
    testing::Values("marian", "marian_two_vocabularies", "bart", "mbart", "pegasus", "m2m_100"),
    [](const auto& info) { return std::string(info.param); });

TEST(GenerationConfig, SaysWhereDecodingBeginsAndEnds) {
  const GenerationConfig config = read_generation_config("tests/golden/pretrained/marian");
  EXPECT_EQ(config.decoder_start, 60);
  EXPECT_EQ(config.ends, std::vector<int64_t>{0});
  EXPECT_FALSE(config.sample.has_value());
}

TEST(MarianConfig, SurvivesTheFile) {
  const TransformerConfig config{.source_vocab = 40,
      .target_vocab = 40,
      .d_model = 16,
      .num_heads = 2,
      .d_ff = 24,
      .dropout = 0.2,
      .activation = Activation::kSilu,
      .share_embeddings = true,
      .tie_head = true,
      .attention_dropout = 0.1,
      .hidden_dropout = 0,
      .scale_embedding = true,
      .positions = Positions::kHalved,
      .pad_token = 39,
      .zero_start = true};
  const std::string text = marian_config_file(config, 39, 0).dump();
  const auto& family = find_family_as<TransformerFamily>("marian");
  EXPECT_EQ(marian_config_file(family.read(ConfigFile::parse(text, "config.json")), 39, 0).dump(), text);
}
}  // namespace
}  // namespace linnet

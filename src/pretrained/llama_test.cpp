#include "pretrained/llama.h"

#include <gtest/gtest.h>

#include "pretrained/golden_testing.h"

namespace linnet {
namespace {

class LlamaFolder : public testing::TestWithParam<const char*> {
 protected:
  LlamaFolder() : golden(GetParam()), llama(golden.model.as<Llama>()) {}
  PretrainedGolden golden;
  Llama& llama;
};

TEST_P(LlamaFolder, HasTheLogitsOfTransformers) {
  golden.check_output("logits", [&](Trace& trace) {
    return llama.logits(llama.hidden({trace.input("tokens", {DType::kI32, golden.shape("tokens")})}));
  });
}

TEST_P(LlamaFolder, HasItsLossAndGradients) {
  const Shape& shape = golden.shape("tokens");
  golden.check_loss_and_gradients([&](Trace& trace) { return llama_loss(llama, trace, shape[0], shape[1]); });
}

TEST_P(LlamaFolder, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, LlamaFolder, testing::Values("llama", "llama_tied", "llama_scaled"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LlamaConfig, SurvivesTheFile) {
  LlamaConfig config{.vocab_size = 40, .max_seq_len = 12, .width = 8, .heads = 2, .layers = 3, .hidden = 20};
  config.kv_heads = 1, config.head_size = 6, config.tied_head = true, config.activation = Activation::kGeluTanh;
  config.rotary = {.theta = 5e5, .scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 8, .original_length = 4}};
  const LlamaConfig read = llama_config(ConfigFile::parse(llama_config_file(config).dump(), "config.json"));
  EXPECT_EQ(llama_config_file(read).dump(), llama_config_file(config).dump());
}

}  // namespace
}  // namespace linnet

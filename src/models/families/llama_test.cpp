#include "models/families/llama.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/families/golden_testing.h"

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
  const LossFunction loss = [&](Trace& trace) { return llama_loss(llama, trace, shape[0], shape[1]); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
}

TEST_P(LlamaFolder, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, LlamaFolder,
                         testing::Values("llama", "llama_tied", "llama_scaled", "llama_biases", "mistral", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

LlamaConfig small_config() {
  return {.vocab_size = 40, .max_seq_len = 12, .width = 8, .heads = 2, .layers = 3, .hidden = 20};
}

ConfigFile reread(const ConfigFile& file) {
  return llama_config_file(llama_config(ConfigFile::parse(file.dump(), "config.json")));
}

TEST(LlamaConfig, SurvivesTheFile) {
  LlamaConfig config = small_config();
  config.kv_heads = 1, config.head_size = 6, config.tied_head = true, config.activation = Activation::kGeluTanh;
  config.rotary = {.theta = 5e5, .scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 8, .original_length = 4}};
  const ConfigFile file = llama_config_file(config);
  EXPECT_EQ(reread(file).dump(), file.dump());
}

TEST(LlamaConfig, BiasesAndWindowSayWhoseKindItIs) {
  const auto kind = [](Biases biases, int64_t window) {
    LlamaConfig config = small_config();
    config.biases = biases, config.window = window;
    const ConfigFile file = llama_config_file(config);
    EXPECT_EQ(reread(file).dump(), file.dump());
    return file.text("model_type");
  };
  EXPECT_EQ(kind(kNoBiases, 0), "llama");
  EXPECT_EQ(kind({true, true, false}, 0), "llama");
  EXPECT_EQ(kind({false, false, true}, 0), "llama");
  EXPECT_EQ(kind({true, false, false}, 0), "qwen2");
  EXPECT_EQ(kind(kNoBiases, 5), "mistral");
  EXPECT_THROW(kind({true, true, true}, 5), Error);
}

TEST(LlamaConfig, ReadsWindowsAsTheirMakersDo) {
  const auto window = [](const char* type, void (*change)(ConfigFile&)) {
    LlamaConfig config = small_config();
    config.max_seq_len = 10000;
    ConfigFile file = llama_config_file(config);
    file.set("model_type", type);
    change(file);
    return llama_config(file).window;
  };
  EXPECT_EQ(window("mistral", [](ConfigFile&) {}), 4096);  // as transformers reads it
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set_null("sliding_window"); }), 0);
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set("sliding_window", 7); }), 7);
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set("sliding_window", 10000); }), 0);  // hides nothing
  EXPECT_EQ(window("qwen2", [](ConfigFile& file) { file.set("sliding_window", 7); }), 0);
  EXPECT_EQ(window("qwen2", [](ConfigFile& file) { file.set("use_sliding_window", true); }), 0);  // from layer 28 on
  const auto some_layers = [](ConfigFile& file) {
    file.set("use_sliding_window", true);
    file.set("max_window_layers", 2);
  };
  EXPECT_THROW(window("qwen2", some_layers), Error);
}

}  // namespace
}  // namespace linnet

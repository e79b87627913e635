#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "error_of.h"
#include "generation/engine.h"
#include "golden_testing.h"
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
class LlamaFolder : public testing::TestWithParam<const char*> {
 protected:
  LlamaFolder() : golden(GetParam()), llama(golden.model.as<TextDecoder>()) {}
  PretrainedGolden golden;
  TextDecoder& llama;
};

TEST_P(LlamaFolder, HasTheLogitsOfTransformers) {
  golden.check_output("logits", [&](Trace& trace) {
    return llama.logits(llama.hidden({trace.input("tokens", {DType::kI32, golden.shape("tokens")})}));
  });
}

TEST_P(LlamaFolder, HasItsLossAndGradients) {
  const Shape& shape = golden.shape("tokens");
  const LossFunction loss = [&](Trace& trace) { return causal_loss(llama, trace, shape[0], shape[1]); };
  golden.check_loss_and_gradients(loss);
  golden.check_training_in_fp16(loss);
}

TEST_P(LlamaFolder, IsSavedBitForBit) { golden.check_saving(); }

INSTANTIATE_TEST_SUITE_P(Folders, LlamaFolder,
    testing::Values("llama", "llama_tied", "llama_scaled", "llama_biases", "mistral", "qwen2", "qwen3"),
    [](const auto& info) { return std::string(info.param); });

constexpr const char* kNewer[] = {"gemma", "gemma2", "gemma3", "phi3", "phi3_long", "phi3_longer", "olmo2", "smollm3",
    "granite", "gpt_neox", "gpt_neox_serial", "opt", "opt_narrow", "starcoder2", "mixtral", "olmoe", "qwen3_moe",
    "qwen3_yarn", "qwen2_windows", "stablelm", "stablelm_plain"};
INSTANTIATE_TEST_SUITE_P(
    NewerFolders, LlamaFolder, testing::ValuesIn(kNewer), [](const auto& info) { return std::string(info.param); });

// On the key-value cache: the tokens that transformers finds likeliest.
class GeneratedTokens : public testing::TestWithParam<const char*> {};

TEST_P(GeneratedTokens, AreThoseOfTransformers) {
  const PretrainedGolden golden(GetParam());
  const int64_t prompt = std::string(GetParam()) == "phi3_longer" ? 11 : 5;
  auto& model = golden.model.as<TextDecoder>();
  Store store;
  const size_t bytes = golden.parameters.size() * sizeof(float);
  store.bind("parameters", {store.add_region("weights", MemoryKind::kParameters, bytes), 0}, bytes);
  const SharedRegions shared{
      store.add_region("arena", MemoryKind::kActivations, 0), store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  CausalGenerator generator(model, golden.layout, store, shared, {.max_length = prompt + 20});
  store.allocate();
  std::ranges::copy(golden.parameters, store.as<float>("parameters"));
  generator.bind();
  ThreadPool pool(1);
  GenerateSettings settings{.max_tokens = 20};
  settings.sampling.temperature = 0;
  std::vector<std::vector<int32_t>> prompts{golden.ids("tokens")};
  prompts[0].resize(static_cast<size_t>(prompt));
  EXPECT_EQ(generator.generate(prompts, settings, pool).at(0).tokens, golden.ids("generated"));
}

INSTANTIATE_TEST_SUITE_P(
    NewerFolders, GeneratedTokens, testing::ValuesIn(kNewer), [](const auto& info) { return std::string(info.param); });

DecoderConfig small_config() {
  return llama_kind({.vocab_size = 40, .max_seq_len = 12, .width = 8, .heads = 2, .layers = 3, .hidden = 20});
}

ConfigFile reread(const std::string& model_type, const ConfigFile& file) {
  return decoder_config_file(model_type, decoder_config(ConfigFile::parse(file.dump(), "config.json")));
}

TEST(GemmaConfig, HasTheActivationOfTransformers) {
  ConfigFile file("tests/golden/pretrained/gemma/config.json");
  file.set("hidden_act", "gelu");  // of the first published files
  EXPECT_EQ(decoder_config(file).activation, Activation::kGeluTanh);
  file.set("hidden_act", "silu");
  EXPECT_EQ(decoder_config(file).activation, Activation::kSilu);
  file.erase("hidden_act");
  EXPECT_EQ(decoder_config(file).activation, Activation::kGeluTanh);
}

TEST(Gemma3Config, HasWindowsAndThetasByLayer) {
  const char* const text =
      R"({"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "intermediate_size": 6912,
          "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26,
          "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50,
          "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144})";
  const DecoderConfig config = decoder_config(ConfigFile::parse(text, "config.json"));
  EXPECT_EQ(config.soft_cap, 0);  // the key is Gemma 2's, transformers leaves it out
  EXPECT_EQ(config.layer_kinds[4].window, 512);
  EXPECT_EQ(config.layer_kinds[4].rotary->theta, 1e4);
  EXPECT_EQ(config.layer_kinds[5].window, 0);
  EXPECT_EQ(config.layer_kinds[5].rotary->theta, 1e6);
}

TEST(Gemma3Config, RopeScalingIsOfLayersWithoutAWindow) {
  ConfigFile file = ConfigFile::parse(
      R"({"model_type": "gemma3_text", "head_dim": 4, "hidden_size": 8, "intermediate_size": 12,
          "max_position_embeddings": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
          "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "vocab_size": 40,
          "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 100},
                              "full_attention": {"rope_type": "default", "rope_theta": 1000}},
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}})",
      "config.json");
  const DecoderConfig config = decoder_config(file);
  EXPECT_EQ(config.layer_kinds[0].rotary->scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config.layer_kinds[1].rotary->scaling.factor, 8);
  EXPECT_EQ(config.layer_kinds[1].rotary->theta, 1000);
}

// Three tensors of experts are not those of queries, keys and values, whose first may have other sizes.
TEST(QwenMoeConfig, ThreeExpertsHaveTheWidthOfTheModel) {
  DecoderConfig config = small_config();
  config.head_size = 6, config.experts = 3, config.chosen_experts = 1, config.hidden = 4;
  const PretrainedModel model = new_pretrained(decoder_config_file("qwen3_moe", config));
  int64_t found = 0;
  for (const NameRow& row : model.names.rows) {
    if (!row.tensor.ends_with("down_proj.weight")) continue;
    EXPECT_EQ(row.rows, config.width) << row.tensor;
    ++found;
  }
  EXPECT_EQ(found, 9);
}

TEST(MixtralConfig, HasTheDefaultsOfTransformers) {
  ConfigFile file("tests/golden/pretrained/mixtral/config.json");
  for (const char* key : {"rms_norm_eps", "rope_theta", "rope_parameters"}) file.erase(key);
  const DecoderConfig config = decoder_config(file);
  EXPECT_EQ(config.epsilon, 1e-5);
  EXPECT_EQ(config.rotary->theta, 1e6);
}

TEST(LlamaConfig, SurvivesTheFile) {
  DecoderConfig config = small_config();
  config.kv_heads = 1, config.head_size = 6, config.tied_head = true, config.activation = Activation::kGeluTanh;
  config.rotary = {.theta = 5e5, .scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 8, .original_length = 4}};
  config.biases = {.attention = true, .output = true, .feed_forward = false};
  const ConfigFile file = decoder_config_file("llama", config);
  EXPECT_EQ(reread("llama", file).dump(), file.dump());
  EXPECT_EQ(file.flag("attention_bias", false), true);
  EXPECT_EQ(file.object("rope_scaling").text("rope_type"), "llama3");
}

// With the magnitude of DeepSeek's keys, and as a file says it that leaves them to their defaults.
TEST(LlamaConfig, HasYarn) {
  const DecoderConfig small = small_config();
  ConfigFile file = decoder_config_file("llama", small), rope;
  rope.set("rope_type", "yarn");
  rope.set("original_max_position_embeddings", small.max_seq_len / 4);
  file.set("rope_scaling", rope);
  const RopeScaling scaling = decoder_config(file).rotary->scaling;
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.high_factor, 32);
  EXPECT_NEAR(scaling.magnitude, 1 + 0.1 * std::log(4.0), 1e-12);
  const ConfigFile written = decoder_config_file("llama", decoder_config(file));
  EXPECT_EQ(reread("llama", written).dump(), written.dump());
  EXPECT_EQ(decoder_config(written).rotary->scaling, scaling);
  rope.set("mscale", 1.0), rope.set("mscale_all_dim", 0.5);
  file.set("rope_scaling", rope);
  EXPECT_NEAR(
      decoder_config(file).rotary->scaling.magnitude, (1 + 0.1 * std::log(4.0)) / (1 + 0.05 * std::log(4.0)), 1e-12);
}

// As transformers 5 reads them.
TEST(LlamaConfig, RopeScalingCountsBesideRopeParameters) {
  ConfigFile file = decoder_config_file("llama", small_config()), parameters, scaling;
  parameters.set("rope_type", "default"), parameters.set("rope_theta", 1e4);
  scaling.set("rope_type", "linear"), scaling.set("factor", 2.0);
  file.set("rope_parameters", parameters), file.set("rope_scaling", scaling);
  EXPECT_EQ(decoder_config(file).rotary->scaling.factor, 2);
  file.set_null("rope_scaling");
  EXPECT_EQ(decoder_config(file).rotary->scaling.kind, RopeScaling::Kind::kNone);
}

TEST(LlamaConfig, TheOriginalLengthOfLlama3sScalingIsTheModelsUnlessItIsGiven) {
  ConfigFile file = decoder_config_file("llama", small_config()), scaling;
  scaling.set("rope_type", "llama3"), scaling.set("factor", 4.0);
  file.set("rope_scaling", scaling);
  EXPECT_EQ(decoder_config(file).rotary->scaling.original_length, small_config().max_seq_len);
}

// In transformers only phi3, stablelm and gpt_neox turn a part of each head.
TEST(LlamaConfig, WholeHeadsTurnWhateverAFileSays) {
  for (const char* type : {"llama", "mistral", "qwen2", "smollm3", "phi3", "stablelm"}) {
    DecoderConfig small = small_config();
    if (type == std::string("stablelm")) small.norms = NormKind::kLayer;
    ConfigFile file = decoder_config_file(type, small), rope;
    file.set("partial_rotary_factor", 0.5);
    const double share = type == std::string("phi3") || type == std::string("stablelm") ? 0.5 : 1;
    EXPECT_EQ(decoder_config(file).rotary->share, share) << type;
    file.erase("partial_rotary_factor");
    rope.set("rope_type", "default"), rope.set("partial_rotary_factor", 0.5);
    file.set("rope_parameters", rope);
    EXPECT_EQ(decoder_config(file).rotary->share, share) << type;
  }
}

TEST(LlamaConfig, IsSavedAsTheFamilyItIs) {
  for (const char* type : {"llama", "mistral", "qwen2"}) {
    const ConfigFile file = decoder_config_file(type, small_config());
    EXPECT_EQ(file.text("model_type"), type);
    EXPECT_EQ(reread(type, file).dump(), file.dump());
    EXPECT_EQ(decoder_config(file).biases.attention, std::string(type) == "qwen2");
  }
}

TEST(LlamaConfig, AsManyHeadsOfKeysAsOfQueriesAreWrittenAsSuch) {
  DecoderConfig config = small_config();
  config.kv_heads = 0;
  for (const char* type : {"llama", "smollm3", "starcoder2", "stablelm"}) {
    if (type == std::string("starcoder2")) config.norms = NormKind::kLayer;
    EXPECT_EQ(decoder_config_file(type, config).integer("num_key_value_heads"), config.heads) << type;
  }
}

// What its larger models have and no layer here does: other numbers without an error would be the worst outcome.
TEST(StableLmConfig, RefusesWhatNoLayerHas) {
  DecoderConfig small = small_config();
  small.norms = NormKind::kLayer, small.rotary->share = 0.5;
  const ConfigFile file = decoder_config_file("stablelm", small);
  EXPECT_EQ(reread("stablelm", file).dump(), file.dump());
  const auto error = [&](const char* key, Json value) {
    ConfigFile changed = file;
    changed.set(key, std::move(value));
    return error_of([&] { decoder_config(changed); });
  };
  EXPECT_EQ(error("qk_layernorm", true), "'config.json': \"qk_layernorm\" is true, Linnet supports only false");
  EXPECT_EQ(error("use_parallel_residual", true),
      "'config.json': \"use_parallel_residual\" is true, Linnet supports only false");
  EXPECT_EQ(error("hidden_dropout", 0.1), "'config.json': \"hidden_dropout\" is not 0, Linnet supports only 0");
}

TEST(LlamaConfig, ReadsWindowsAsTheirAuthorsDo) {
  const auto window = [](const char* type, void (*change)(ConfigFile&)) {
    DecoderConfig config = small_config();
    config.max_seq_len = 10000;
    ConfigFile file = decoder_config_file("llama", config);
    file.set("model_type", type);
    change(file);
    return decoder_config(file).window;
  };
  EXPECT_EQ(window("mistral", [](ConfigFile&) {}), 4096);  // as transformers reads it
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set_null("sliding_window"); }), 0);
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set("sliding_window", 7); }), 7);
  EXPECT_EQ(window("mistral", [](ConfigFile& file) { file.set("sliding_window", 10000); }), 0);  // hides nothing
  EXPECT_EQ(window("qwen2", [](ConfigFile& file) { file.set("sliding_window", 7); }), 0);
  EXPECT_EQ(window("qwen2", [](ConfigFile& file) { file.set("use_sliding_window", true); }), 0);  // from layer 28 on
  ConfigFile file = decoder_config_file("llama", small_config());
  file.set("model_type", "qwen2");
  file.set("use_sliding_window", true), file.set("sliding_window", 7), file.set("max_window_layers", 2);
  const DecoderConfig config = decoder_config(file);
  ASSERT_EQ(config.layer_kinds.size(), 3U);
  EXPECT_EQ(config.layer_kinds[1].window, 0);
  EXPECT_EQ(config.layer_kinds[2].window, 7);
  EXPECT_EQ(reread("qwen2", decoder_config_file("qwen2", config)).dump(), decoder_config_file("qwen2", config).dump());
}
}  // namespace
}  // namespace linnet

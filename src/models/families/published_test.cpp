// The sizes that the authors of decoders have published, and the numbers of parameters that transformers counts for
// them. The values are written from knowledge of the checkpoints, not copied from their config.json files. Models are
// described only: no weights are in memory.
#include <gtest/gtest.h>
#include "models/families/pretrained.h"

namespace linnet {
namespace {
struct Size {
  const char* name;
  int64_t width, hidden, layers, heads, kv_heads, vocabulary, parameters;
  std::string keys = "";  // those that not all sizes of the family share
};

struct Published {
  const char *type, *keys;  // model_type, and keys of all sizes
  std::vector<Size> sizes;
};

const std::string kTied = R"(, "tie_word_embeddings": true)", kUntied = R"(, "tie_word_embeddings": false)";
const std::string kHeadsOf64 = R"(, "head_dim": 64)", kHeadsOf128 = R"(, "head_dim": 128)";

std::string positions(int64_t count) { return ", \"max_position_embeddings\": " + std::to_string(count); }
// Llama 3's scaling of rotary positions.
std::string scaled(int factor) {
  return positions(131072) + R"(, "rope_scaling": {"factor": )" + std::to_string(factor) +
         R"(, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
             "rope_type": "llama3"})";
}
// Phi-3's longrope, with `count` divisors.
std::string longrope(int count, const char* type = "longrope") {
  std::string factors = "[1.0";
  for (int i = 1; i < count; ++i) factors += ", " + std::to_string(1 + 0.05 * i);
  factors += "]";
  return positions(131072) + R"(, "original_max_position_embeddings": 4096, "rope_scaling": {"type": ")" + type +
         R"(", "short_factor": )" + factors + R"(, "long_factor": )" + factors + "}";
}
// Gemma 2 and 3: the number whose root divides scores.
std::string scores(int divisor, int head_size = 256) {
  return R"(, "query_pre_attn_scalar": )" + std::to_string(divisor) + R"(, "head_dim": )" + std::to_string(head_size);
}
const std::string kGemma3Long = positions(131072) + R"(, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"})";
const std::string kGemma3Short = positions(32768) + R"(, "sliding_window": 512, "rope_scaling": null)";
const std::string kQwen25Layers = R"(, "max_window_layers": 70, "sliding_window": 131072)";

const Published kPublished[] = {
    {"gpt2", R"("activation_function": "gelu_new", "n_positions": 1024)",
        {{"gpt2", 768, 0, 12, 12, 0, 50257, 124439808}, {"gpt2-medium", 1024, 0, 24, 16, 0, 50257, 354823168},
            {"gpt2-large", 1280, 0, 36, 20, 0, 50257, 774030080}, {"gpt2-xl", 1600, 0, 48, 25, 0, 50257, 1557611200}}},
    {"llama", R"("hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "pretraining_tp": 1)",
        {{"Llama 2 7B", 4096, 11008, 32, 32, 32, 32000, 6738415616, kUntied},
            {"Llama 2 13B", 5120, 13824, 40, 40, 40, 32000, 13015864320, kUntied},
            {"Llama 2 70B", 8192, 28672, 80, 64, 8, 32000, 68976648192, kUntied},
            {"Llama 3 8B", 4096, 14336, 32, 32, 8, 128256, 8030261248, kUntied + positions(8192)},
            {"Llama 3.1 8B", 4096, 14336, 32, 32, 8, 128256, 8030261248, kUntied + scaled(8)},
            {"Llama 3.1 and 3.3 70B", 8192, 28672, 80, 64, 8, 128256, 70553706496, kUntied + scaled(8)},
            {"Llama 3.1 405B", 16384, 53248, 126, 128, 8, 128256, 405853388800, kUntied + scaled(8)},
            {"Llama 3.2 1B", 2048, 8192, 16, 32, 8, 128256, 1235814400, kTied + kHeadsOf64 + scaled(32)},
            {"Llama 3.2 3B", 3072, 8192, 28, 24, 8, 128256, 3212749824, kTied + kHeadsOf128 + scaled(32)},
            {"SmolLM2 135M", 576, 1536, 30, 9, 3, 49152, 134515008, kTied + positions(8192)},
            {"SmolLM2 360M", 960, 2560, 32, 15, 5, 49152, 361821120, kTied + positions(8192)},
            {"SmolLM2 1.7B", 2048, 8192, 24, 32, 32, 49152, 1711376384, kTied + positions(8192)}}},
    {"mistral", R"("rope_theta": 1000000.0)",
        {{"Mistral 7B 0.1", 4096, 14336, 32, 32, 8, 32000, 7241732096, R"(, "sliding_window": 4096)"},
            {"Mistral 7B 0.3", 4096, 14336, 32, 32, 8, 32768, 7248023552, R"(, "sliding_window": null)"},
            {"Mistral Nemo", 5120, 14336, 40, 32, 8, 131072, 12247782400, R"(, "sliding_window": null)" + kHeadsOf128},
            {"Mistral Small 24B", 5120, 32768, 40, 32, 8, 131072, 23572403200,
                R"(, "sliding_window": null)" + kHeadsOf128},
            {"Mistral Large", 12288, 28672, 88, 96, 8, 32768, 122610069504,
                R"(, "sliding_window": null)" + kHeadsOf128},
            {"Ministral 8B", 4096, 12288, 36, 32, 8, 131072, 8019808256,
                R"(, "sliding_window": 32768)" + kHeadsOf128}}},
    {"mixtral", R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null)",
        {{"Mixtral 8x7B", 4096, 14336, 32, 32, 8, 32000, 46702792704},
            {"Mixtral 8x22B", 6144, 16384, 56, 48, 8, 32768, 140630071296}}},
    {"qwen2", R"("rope_theta": 1000000.0, "use_sliding_window": false)",
        {{"Qwen2 and 2.5 0.5B", 896, 4864, 24, 14, 2, 151936, 494032768, kTied + R"(, "max_window_layers": 21)"},
            {"Qwen2 and 2.5 1.5B", 1536, 8960, 28, 12, 2, 151936, 1543714304, kTied + R"(, "max_window_layers": 21)"},
            {"Qwen2.5 3B", 2048, 11008, 36, 16, 2, 151936, 3085938688, kTied + R"(, "max_window_layers": 70)"},
            {"Qwen2 and 2.5 7B", 3584, 18944, 28, 28, 4, 152064, 7615616512, kUntied + R"(, "max_window_layers": 28)"},
            {"Qwen2.5 14B", 5120, 13824, 48, 40, 8, 152064, 14770033664, kUntied + kQwen25Layers},
            {"Qwen2.5 32B", 5120, 27648, 64, 40, 8, 152064, 32763876352, kUntied + kQwen25Layers},
            {"Qwen2 and 2.5 72B", 8192, 29568, 80, 64, 8, 152064, 72706203648, kUntied + kQwen25Layers}}},
    {"qwen3", R"("head_dim": 128, "attention_bias": false, "sliding_window": null, "max_position_embeddings": 40960)",
        {{"Qwen3 0.6B", 1024, 3072, 28, 16, 8, 151936, 596049920, kTied},
            {"Qwen3 1.7B", 2048, 6144, 28, 16, 8, 151936, 1720574976, kTied},
            {"Qwen3 4B", 2560, 9728, 36, 32, 8, 151936, 4022468096, kTied},
            {"Qwen3 8B", 4096, 12288, 36, 32, 8, 151936, 8190735360, kUntied},
            {"Qwen3 14B", 5120, 17408, 40, 40, 8, 151936, 14768307200, kUntied},
            {"Qwen3 32B", 5120, 25600, 64, 64, 8, 151936, 32762123264, kUntied}}},
    {"qwen3_moe",
        R"("head_dim": 128, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true,
                     "num_experts_per_tok": 8, "attention_bias": false, "tie_word_embeddings": false)",
        {{"Qwen3 30B-A3B", 2048, 6144, 48, 32, 4, 151936, 30532122624,
             R"(, "moe_intermediate_size": 768, "num_experts": 128)"},
            {"Qwen3 235B-A22B", 4096, 12288, 94, 64, 4, 151936, 235093634560,
                R"(, "moe_intermediate_size": 1536, "num_experts": 128)"},
            {"Qwen3 Coder 480B-A35B", 6144, 8192, 62, 96, 8, 151936, 480154875392,
                R"(, "moe_intermediate_size": 2560, "num_experts": 160)"}}},
    {"olmoe", R"("num_experts": 64, "num_experts_per_tok": 8, "clip_qkv": null)",
        {{"OLMoE 1B-7B", 2048, 1024, 16, 16, 16, 50304, 6919161856}}},
    {"olmo2", R"("attention_bias": false, "rope_theta": 500000, "rms_norm_eps": 1e-06)",
        {{"OLMo 2 1B", 2048, 8192, 16, 16, 16, 100352, 1484916736, kUntied},
            {"OLMo 2 7B", 4096, 11008, 32, 32, 32, 100352, 7298617344, kUntied},
            {"OLMo 2 13B", 5120, 13824, 40, 40, 40, 100352, 13716198400, kUntied},
            {"OLMo 2 32B", 5120, 27648, 64, 40, 8, 100352, 32234279936, kUntied}}},
    {"gemma", R"("hidden_act": "gelu", "hidden_activation": null, "head_dim": 256, "max_position_embeddings": 8192)",
        {{"Gemma 2B", 2048, 16384, 18, 8, 1, 256000, 2506172416},
            {"Gemma 7B", 3072, 24576, 28, 16, 16, 256000, 8537680896}}},
    {"gemma2",
        R"("attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096,
                  "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192)",
        {{"Gemma 2 2B", 2304, 9216, 26, 8, 4, 256000, 2614341888, scores(256)},
            {"Gemma 2 9B", 3584, 14336, 42, 16, 8, 256000, 9241705984, scores(256)},
            {"Gemma 2 27B", 4608, 36864, 46, 32, 16, 256000, 27227128320, scores(144, 128)}}},
    {"gemma3_text", R"("rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "sliding_window_pattern": 6)",
        {{"Gemma 3 270M", 640, 2048, 18, 4, 1, 262144, 268098176, scores(256) + kGemma3Short},
            {"Gemma 3 1B", 1152, 6912, 26, 4, 1, 262144, 999885952, scores(256) + kGemma3Short},
            {"Gemma 3 4B", 2560, 10240, 34, 8, 4, 262208, 3880263168, scores(256) + kGemma3Long},
            {"Gemma 3 12B", 3840, 15360, 48, 16, 8, 262208, 11766034176, scores(256) + kGemma3Long},
            {"Gemma 3 27B", 5376, 21504, 62, 32, 16, 262208, 27009346304, scores(168, 128) + kGemma3Long}}},
    {"phi3", R"("resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_bias": false)",
        {{"Phi-3 mini 4k", 3072, 8192, 32, 32, 32, 32064, 3821079552, R"(, "sliding_window": 2047)" + positions(4096)},
            {"Phi-3 mini 128k", 3072, 8192, 32, 32, 32, 32064, 3821079552, longrope(48)},
            {"Phi-3 mini 128k, its first folder", 3072, 8192, 32, 32, 32, 32064, 3821079552, longrope(48, "su")},
            {"Phi-3 medium 4k", 5120, 17920, 40, 40, 10, 32064, 13960238080,
                R"(, "sliding_window": 2047)" + positions(4096)},
            {"Phi-3 medium 128k", 5120, 17920, 40, 40, 10, 32064, 13960238080, longrope(64)},
            {"Phi-4", 5120, 17920, 40, 40, 10, 100352, 14659507200, R"(, "rope_scaling": null)" + positions(16384)},
            {"Phi-4 mini", 3072, 8192, 32, 24, 8, 200064, 3836021760,
                R"(, "partial_rotary_factor": 0.75)" + kTied + longrope(48)}}},
    {"smollm3", R"("no_rope_layer_interval": 4, "use_sliding_window": false, "rope_theta": 5000000.0)",
        {{"SmolLM3 3B", 2048, 11008, 36, 16, 4, 128256, 3075098624}}},
    {"granite", R"("embedding_multiplier": 12.0, "residual_multiplier": 0.22, "tie_word_embeddings": true)",
        {{"Granite 3.0 and 3.1 2B", 2048, 8192, 40, 32, 8, 49155, 2533531648, R"(, "logits_scaling": 8.0)"},
            {"Granite 3.0 and 3.1 8B", 4096, 12800, 40, 32, 8, 49155, 8170848256, R"(, "logits_scaling": 16.0)"},
            {"Granite 3.3 2B", 2048, 8192, 40, 32, 8, 49159, 2533539840, R"(, "logits_scaling": 8.0)"},
            {"Granite 3.3 8B", 4096, 12800, 40, 32, 8, 49159, 8170864640, R"(, "logits_scaling": 16.0)"}}},
    {"gpt_neox", R"("hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000, "tie_word_embeddings": false)",
        {{"Pythia 14M", 128, 512, 6, 4, 0, 50304, 14067712}, {"Pythia 31M", 256, 1024, 6, 8, 0, 50304, 30494720},
            {"Pythia 70M", 512, 2048, 6, 8, 0, 50304, 70426624},
            {"Pythia 160M", 768, 3072, 12, 12, 0, 50304, 162322944},
            {"Pythia 410M", 1024, 4096, 24, 16, 0, 50304, 405334016},
            {"Pythia 1B", 2048, 8192, 16, 8, 0, 50304, 1011781632},
            {"Pythia 1.4B", 2048, 8192, 24, 16, 0, 50304, 1414647808},
            {"Pythia 2.8B", 2560, 10240, 32, 32, 0, 50304, 2775208960},
            {"Pythia 6.9B", 4096, 16384, 32, 32, 0, 50432, 6857302016},
            {"Pythia 12B", 5120, 20480, 36, 40, 0, 50688, 11846072320},
            {"GPT-NeoX 20B", 6144, 24576, 44, 64, 0, 50432, 20554567680}}},
    {"opt", R"("activation_function": "relu", "_remove_final_layer_norm": false, "layerdrop": 0.0)",
        {{"OPT 125M", 768, 3072, 12, 12, 0, 50272, 125239296},
            {"OPT 350M", 1024, 4096, 24, 16, 0, 50272, 331196416,
                R"(, "do_layer_norm_before": false, "word_embed_proj_dim": 512)"},
            {"OPT 1.3B", 2048, 8192, 24, 32, 0, 50272, 1315758080},
            {"OPT 2.7B", 2560, 10240, 32, 32, 0, 50272, 2651596800},
            {"OPT 6.7B", 4096, 16384, 32, 32, 0, 50272, 6658473984},
            {"OPT 13B", 5120, 20480, 40, 40, 0, 50272, 12853473280},
            {"OPT 30B", 7168, 28672, 48, 56, 0, 50272, 29974540288},
            {"OPT 66B", 9216, 36864, 64, 72, 0, 50272, 65719701504}}},
    {"starcoder2", R"("hidden_act": "gelu_pytorch_tanh", "use_bias": true, "sliding_window": 4096)",
        {{"StarCoder2 3B", 3072, 12288, 30, 24, 2, 49152, 3030371328},
            {"StarCoder2 7B", 4608, 18432, 32, 36, 4, 49152, 7173923840},
            {"StarCoder2 15B", 6144, 24576, 40, 48, 4, 49152, 15957889024, kUntied}}},
    {"stablelm", R"("partial_rotary_factor": 0.25, "rope_theta": 10000)",
        {{"StableLM 3B 4E1T", 2560, 6912, 32, 32, 32, 50304, 2795443200},
            {"StableLM 2 1.6B", 2048, 5632, 24, 32, 32, 100352, 1644515328, R"(, "use_qkv_bias": true)"}}}};

std::string config_text(const Published& family, const Size& size) {
  const bool is_gpt2 = family.type == std::string("gpt2"), is_opt = family.type == std::string("opt");
  const auto key = [](const std::string& name, int64_t value) {
    return value > 0 ? ", \"" + name + "\": " + std::to_string(value) : "";
  };
  return std::string(R"({"model_type": ")") + family.type + "\", " + family.keys + size.keys +
         key(is_gpt2 ? "n_embd" : "hidden_size", size.width) +
         key(is_opt ? "ffn_dim" : "intermediate_size", size.hidden) +
         key(is_gpt2 ? "n_layer" : "num_hidden_layers", size.layers) +
         key(is_gpt2 ? "n_head" : "num_attention_heads", size.heads) + key("num_key_value_heads", size.kv_heads) +
         key("vocab_size", size.vocabulary) + "}";
}

TEST(PublishedDecoders, HaveTheirNumberOfParameters) {
  for (const Published& family : kPublished)
    for (const Size& size : family.sizes)
      EXPECT_EQ(
          new_pretrained(ConfigFile::parse(config_text(family, size), size.name)).parameter_count(), size.parameters)
          << size.name;
}

// Gemma 3 of texts and pictures is read as its text's part; files leave out what its class takes for granted.
TEST(PublishedDecoders, TheTextPartOfGemma3IsAModel) {
  const std::string text = R"("model_type": "gemma3_text", "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                              "sliding_window": 1024, )";
  for (const auto& [sizes, parameters] :
      {std::pair{R"("hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34)", INT64_C(3880263168)},
          {R"("hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
            "num_key_value_heads": 8)",
              INT64_C(11766034176)}}) {
    const ConfigFile config = ConfigFile::parse(
        R"({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
            "vision_config": {"hidden_size": 1152}, "text_config": {)" +
            text + sizes + "}}",
        "gemma3");
    EXPECT_EQ(new_pretrained(config).parameter_count(), parameters);
    EXPECT_EQ(config.text("model_type"), "gemma3_text");
  }
}
}  // namespace
}  // namespace linnet

// EmbeddingGemma (Schechter Vera et al. 2025): Gemma 3 whose layers see both ways.
#include "models/families/decoder_family.h"
#include "models/families/encoder_family.h"

namespace linnet {
namespace {
constexpr const char* kBothWays = "use_bidirectional_attention";

// Windows reach half the key's value to either side.
Field<EncoderConfig> as_encoder() {
  return {[](const ConfigFile& file, EncoderConfig& config) {
    ConfigFile causal = file;
    causal.set(kBothWays, false);
    const DecoderConfig gemma = decoder_config(causal);
    config.vocab_size = gemma.vocab_size, config.max_seq_len = gemma.max_seq_len;
    config.width = gemma.width, config.heads = gemma.heads, config.kv_heads = gemma.kv_heads;
    config.head_size = gemma.head_size, config.layers = gemma.layers, config.hidden = gemma.hidden;
    config.activation = gemma.activation, config.gated = gemma.gated, config.epsilon = gemma.epsilon;
    config.norms = gemma.norms, config.norm_place = gemma.norm_place, config.query_key_norms = gemma.query_key_norms;
    config.attention_scale = gemma.attention_scale, config.embedding_scale = gemma.embedding_scale;
    config.attention_dropout = gemma.attention_dropout, config.pad_token = gemma.pad_token;
    config.layer_kinds = gemma.layer_kinds;
    for (LayerKind& kind : config.layer_kinds)
      if (kind.window > 0) kind.window = kind.window / 2 + 1;
  }};
}
}  // namespace

FamilyList families_of_embedding_gemma() {
  return {encoder_family({.model_type = "gemma3_text",
      .architectures = {{"Gemma3TextModel", ModelHead::kNone}},
      .base = {.token_types = 0,
          .dropout = 0,
          .embedding_norm = false,
          .learned_positions = false,
          .biases = kNoBiases,
          .final_norm = true,
          .has_pooler = false},
      .fields = {as_encoder()},
      .names = EncoderNames{.prefix = "model.",
          .layers = "layers.*.",
          .own = {{"bert.words", "^embed_tokens"}, {"bert.norm", "^norm"},
              {"*.self_attn.in_proj", "self_attn.q_proj self_attn.k_proj self_attn.v_proj"},
              {"*.self_attn.query_norm", "self_attn.q_norm"}, {"*.self_attn.key_norm", "self_attn.k_norm"},
              {"*.self_attn.out_proj", "self_attn.o_proj"}, {"*.norm1", "input_layernorm"},
              {"*.result_norm1", "post_attention_layernorm"}, {"*.norm2", "pre_feedforward_layernorm"},
              {"*.result_norm2", "post_feedforward_layernorm"}, {"*.linear1", "mlp.gate_proj"},
              {"*.linear3", "mlp.up_proj"}, {"*.linear2", "mlp.down_proj"}},
          .heads = {"lm_head.*"}},
      .flag = kBothWays})};
}
}  // namespace linnet

// A decoder-only model: token embedding, layers under a causal mask, norm and output layer; DecoderConfig has all that
// families differ in. Defaults: GPT-2 124M (Radford et al. 2019), 124,439,808 parameters.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/causal_model.h"

namespace linnet {
struct DecoderConfig {
  int64_t vocab_size = 50257, max_seq_len = 1024;
  int64_t width = 768, heads = 12, layers = 12;
  int64_t hidden = 0;     // of the feed-forward; 0: 4 width
  int64_t kv_heads = 0;   // of keys and values; 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  double dropout = 0;     // of embeddings, of attention probabilities and of each sub-layer's result...
  std::optional<double> embedding_dropout = {}, attention_dropout = {};  // ...where these do not say otherwise
  Activation activation = Activation::kGeluTanh;
  bool gated = false;  // the feed-forward (LayerConfig)
  NormKind norms = NormKind::kLayer;
  NormPlace norm_place = NormPlace::kInput;
  double epsilon = 1e-5;                    // of the norms
  bool final_norm = true;                   // of the last layer's states
  bool parallel = false;                    // attention and feed-forward (LayerConfig)
  bool fused_gate = false;                  // of the feed-forward
  int64_t experts = 0, chosen_experts = 0;  // > 0: in place of the feed-forward (LayerConfig)
  bool normalized_choice = false;
  double load_loss = 0;  // weight of a loss in training that keeps experts equally busy (Fedus et al. 2022)
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  bool learned_positions = true;  // added to the token embedding...
  int64_t first_position = 0;     // ...from this row of their table on
  std::optional<RotaryConfig> rotary = {};
  int64_t window = 0;                       // a position sees the last `window` ones, its own included; 0: all
  std::vector<LayerKind> layer_kinds = {};  // of each layer, in place of `window` and `rotary`; empty: all are alike
  double attention_scale = 0;               // of scores; 0: 1 / sqrt(head_size)
  double soft_cap = 0, logit_cap = 0;       // scores and logits s become cap * tanh(s / cap); 0: none
  double embedding_scale = 1;               // of the token embedding
  double residual_scale = 1;                // of what is added to the residual stream
  double logit_scale = 1;
  int64_t embedding_width = 0;  // of the token embedding, with projections from and to it; 0: width
  int64_t pad_token = -1;       // its embedding is not trained by lookups; -1: none
  Biases biases = {};
  bool tied_head = true;        // the output layer is the token embedding
  double deviation = 0.02;      // of initial weights...
  bool scaled_residual = true;  // ...divided, where results are added to the residual stream, by sqrt(2 layers)
};

// The same sizes with Llama's options (Touvron et al. 2023): root-mean-square norms, rotary positions, a gated
// feed-forward, no biases, an untied output layer.
DecoderConfig llama_kind(DecoderConfig sizes);

struct TextDecoder : CausalModel {
  explicit TextDecoder(const DecoderConfig& config);
  // tokens i32 [B, T], T <= max_seq_len -> the last layer's normalized states [B, T, D]
  Tensor operator()(Tensor tokens) { return hidden({tokens}); }

  int64_t vocab_size() const override { return config.vocab_size; }
  int64_t max_length() const override { return config.max_seq_len; }
  int64_t usual_length() const override;
  int64_t window() const override;
  double logit_cap() const override { return config.logit_cap; }
  Tensor hidden(const TokenRows& rows) override;
  Tensor training_loss() override;
  Tensor head_weight() override { return head ? head->tensor() : tokens.weight.tensor(); }
  // Whether decoding reads only rows of the parameter, as of an untied embedding.
  bool is_looked_up(const ParameterSpec& parameter) const;

  const DecoderConfig config;
  Embedding tokens;
  std::unique_ptr<Embedding> positions;           // null where they are not learned
  std::optional<Linear> project_in, project_out;  // from and to the width of the token embedding
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
  std::optional<LayerNorm> norm;
  std::optional<Parameter> head;  // absent when tied

 private:
  Tensor embed(const TokenRows& rows);
};
}  // namespace linnet

// A decoder of Llama's kind (Touvron et al. 2023): pre-norm layers with root-mean-square norms, rotary positions, a
// gated feed-forward, fewer key than query heads. Mistral's (attention within a window) and Qwen2's (biases of queries,
// keys and values) are of this kind.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/causal_model.h"

namespace linnet {

struct LlamaConfig {
  int64_t vocab_size = 32000, max_seq_len = 2048;
  int64_t width = 4096, heads = 32, layers = 32, hidden = 11008;
  int64_t kv_heads = 0;   // 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  RotaryConfig rotary = {};
  Activation activation = Activation::kSilu;
  double epsilon = 1e-6;         // of the norms
  double attention_dropout = 0;  // of the attention probabilities
  double deviation = 0.02;       // of initial weights
  bool tied_head = false;        // the output layer is the token embedding
  Biases biases = kNoBiases;
  int64_t window = 0;  // a position sees the last `window` ones, its own included; 0: all
};

struct Llama : CausalModel {
  explicit Llama(const LlamaConfig& config);

  int64_t vocab_size() const override { return config.vocab_size; }
  int64_t max_length() const override { return config.max_seq_len; }
  int64_t window() const override { return config.window; }
  Tensor hidden(const TokenRows& rows) override;
  Tensor head_weight() override { return head ? head->tensor() : tokens.weight.tensor(); }

  const LlamaConfig config;
  Embedding tokens;
  ModuleList<EncoderLayer> layers;
  LayerNorm norm;
  std::optional<Parameter> head;  // absent when tied
};

// Next-token loss. Inputs of the graph: "tokens", "targets" i32 [batch, length]; a negative target is left out.
Loss llama_loss(Llama& model, Trace& trace, int64_t batch, int64_t length);

}  // namespace linnet

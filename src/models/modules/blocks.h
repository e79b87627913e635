// Transformer layers that models share. Parameter names and layouts follow PyTorch's nn.TransformerEncoderLayer and
// DecoderLayer, but cross-attention has a separate query weight (cross_attn.q_proj, cross_attn.kv_proj).
#pragma once
#include "models/modules/attention_block.h"
#include "models/nn/layers.h"

namespace linnet {
Tensor activate(Tensor x, Activation activation);

// The layers of a decoder or an encoder as far as their configurations say it alike.
template <class Config> LayerConfig common_layer_config(const Config& config) {
  return {.width = config.width,
      .heads = config.heads,
      .hidden = config.hidden,
      .dropout = config.dropout,
      .norm_place = config.norm_place,
      .activation = config.activation,
      .epsilon = config.epsilon,
      .attention_dropout = config.attention_dropout,
      .norms = config.norms,
      .biases = config.biases,
      .gated = config.gated,
      .fused_gate = config.fused_gate,
      .kv_heads = config.kv_heads,
      .head_size = config.head_size,
      .query_key_norms = config.query_key_norms,
      .attention_scale = config.attention_scale};
}

struct FeedForward : Module {
  FeedForward(Module* parent, const LayerConfig& config);
  Tensor operator()(Tensor x);

  Activation activation;
  bool fused_gate, gate_second;
  Linear linear1, linear2;
  std::optional<Linear> linear3;  // when gated, and not fused
  Dropout dropout;
};

// A mixture of experts (Shazeer et al. 2017): a router chooses gated feed-forwards for each token; no others run.
struct Experts : Module {
  Experts(Module* parent, std::string name, const LayerConfig& config);
  // The sum of the chosen experts' results, weighted by the router's probabilities: [B, T, D].
  Tensor operator()(Tensor x);

  // Of the last call in a training graph, over all its tokens [1, count]: the share of the tokens that chose each
  // expert, and the router's mean probability. Their product keeps experts equally busy (see TextDecoder).
  struct Load {
    Tensor chosen, probability;
  };
  Load load;

  const int64_t chosen;  // experts of a token
  const bool normalized;
  const Activation activation;
  Parameter router;   // [count, D]
  Parameter linear1;  // [count * 2 hidden, D]: for each expert the activated rows, then the gate's
  Parameter linear2;  // [count * D, hidden]
};

// Self-attention and feed-forward: an encoder's layer; with `causal`, a decoder-only model's.
struct EncoderLayer : Module {
  EncoderLayer(Module* parent, std::string name, const LayerConfig& config);
  Tensor operator()(Tensor x, const AttentionContext& context);  // [B, T, D]

  NormPlace norm_place;
  bool parallel;
  double residual_scale;
  SelfAttention self_attn;
  std::optional<FeedForward> feed_forward;  // or experts
  std::optional<Experts> experts;
  std::optional<LayerNorm> norm1, norm2;                // norm1: none without attention_norm
  std::optional<LayerNorm> result_norm1, result_norm2;  // with kInputAndResult
  Dropout dropout1, dropout2;

 private:
  Tensor add(Tensor x, Tensor result) const;  // to the residual stream
};

struct DecoderLayer : Module {
  DecoderLayer(Module* parent, std::string name, const LayerConfig& config);
  // `memory` may be undefined if context.memory is set.
  Tensor operator()(Tensor x, const AttentionContext& context, Tensor memory);

  NormPlace norm_place;  // kSum or kInput
  SelfAttention self_attn;
  CrossAttention cross_attn;
  FeedForward feed_forward;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};
}  // namespace linnet

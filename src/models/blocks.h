// Layers of Transformers, shared by all models: attention and feed-forward with their residual connections.
//
// Parameter names and layouts follow PyTorch's nn.TransformerEncoderLayer and DecoderLayer, except that a
// cross-attention's query projection is a weight of its own (cross_attn.q_proj, cross_attn.kv_proj).
#pragma once
#include <optional>

#include "models/attention_block.h"

namespace linnet {

enum class Activation { kRelu, kGelu, kGeluTanh, kSilu };

struct LayerConfig {
  int64_t width = 256, heads = 8, hidden = 1024;
  double dropout = 0.1;         // of each sub-layer's result
  double hidden_dropout = 0.1;  // of the feed-forward's hidden units
  bool norm_first = false;      // pre-LN (Xiong et al. 2020)
  Activation activation = Activation::kRelu;
  double epsilon = 1e-5;  // of the norms
  // Of weights; `residual`: of those whose results are added to the residual stream. Empty: Glorot's rule.
  Initializer weights = {}, residual = {};
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  bool affine_norms = true;                      // norms have weight and bias
};

struct FeedForward : Module {
  FeedForward(Module* parent, const LayerConfig& config);
  Tensor operator()(Tensor x);

  Activation activation;
  Linear linear1, linear2;
  Dropout dropout;
};

// Self-attention and feed-forward: an encoder's layer, and with `causal` that of a decoder without an encoder.
struct EncoderLayer : Module {
  EncoderLayer(Module* parent, std::string name, const LayerConfig& config);
  // x [B, T, D]; lengths i32 [B], undefined when every position counts; starts i32 [B, T] of packed documents
  Tensor operator()(Tensor x, Tensor lengths, bool causal = false, Tensor starts = {});
  // A decoder's layer in generation (models/causal_model.h).
  Tensor prefill(Tensor x, const CacheShape& cache);
  Tensor step(Tensor x, const DecodeStep& step);

  bool norm_first;
  SelfAttention self_attn;
  FeedForward feed_forward;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
};

struct DecoderLayer : Module {
  DecoderLayer(Module* parent, std::string name, const LayerConfig& config);
  Tensor operator()(Tensor x, Tensor lengths, Tensor memory, Tensor memory_lengths);
  Tensor step(Tensor x, const DecodeStep& step, Tensor keys_values, Tensor memory_lengths);

  bool norm_first;
  SelfAttention self_attn;
  CrossAttention cross_attn;
  FeedForward feed_forward;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};

}  // namespace linnet

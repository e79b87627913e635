// Transformer layers that models share. Parameter names and layouts follow PyTorch's nn.TransformerEncoderLayer and
// DecoderLayer, but cross-attention has a separate query weight (cross_attn.q_proj, cross_attn.kv_proj).
#pragma once
#include <optional>
#include "models/modules/attention_block.h"
#include "models/nn/layers.h"

namespace linnet {

enum class Activation { kRelu, kGelu, kGeluTanh, kSilu, kTanh };

Tensor activate(Tensor x, Activation activation);

// Which linear layers have a bias: attention's query, key and value projections, its output, and the feed-forward.
struct Biases {
  bool attention = true, output = true, feed_forward = true;
  std::optional<bool> last = {};  // of the feed-forward's last layer; empty: as feed_forward
  bool has_last() const { return last.value_or(feed_forward); }
};
constexpr Biases kNoBiases{false, false, false};

// Where norms stand; f is attention or feed-forward.
enum class NormPlace {
  kSum,             // norm(x + f(x)): post-LN
  kInput,           // x + f(norm(x)): pre-LN (Xiong et al. 2020)
  kResult,          // x + norm(f(x))
  kInputAndResult,  // x + norm(f(norm(x)))
};

// The options that may differ among layers of one model.
struct LayerKind {
  int64_t window = 0;  // keys are less than `window` positions before a query, in an encoder also behind it; 0: all
  std::optional<RotaryConfig> rotary = {};  // empty: no rotation
};

struct LayerConfig {
  int64_t width = 256, heads = 8, hidden = 1024;
  double dropout = 0.1;         // of each sub-layer's result
  double hidden_dropout = 0.1;  // of the feed-forward's hidden units
  NormPlace norm_place = NormPlace::kSum;
  bool attention_norm = true;  // with kInput; false: attention's input is not normalized
  bool parallel = false;       // x + attention(norm(x)) + feed-forward(norm(x)), each with its norm
  double residual_scale = 1;   // of the sub-layers' results
  Activation activation = Activation::kRelu;
  double epsilon = 1e-5;  // of the norms
  // Of weights; `residual`: of those whose results enter the residual stream. Empty: Glorot's rule.
  Initializer weights = {}, residual = {};
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  NormKind norms = NormKind::kLayer;
  Biases biases = {};
  bool gated = false;        // f(x) = linear2(activation(linear1(x)) * linear3(x)) (Shazeer 2020)
  bool fused_gate = false;   // linear3 is the second half of linear1
  bool gate_second = false;  // of the fused layer, the second half is activated
  // > 0: this many gated experts replace the feed-forward; each token uses chosen_experts of them.
  int64_t experts = 0, chosen_experts = 0;
  bool normalized_choice = false;
  // For models/modules/attention_block.h.
  int64_t kv_heads = 0, head_size = 0, window = 0;
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  double attention_scale = 0, query_scale = 1, soft_cap = 0;
  std::optional<RotaryConfig> rotary = {};
};

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

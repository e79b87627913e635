// The interface of decoders for next-token training, scoring and generation.
#pragma once
#include "models/modules/attention_block.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {
// Rows of tokens. A packed row holds several documents: `positions` restart with each, and `starts` is where the
// token's document begins, before which it sees nothing.
struct TokenRows {
  Tensor tokens;          // i32 [B, T]
  Tensor positions = {};  // i32 [B, T]; undefined: 0, 1, 2, ... in every row
  Tensor starts = {};     // i32 [B, T]; undefined: 0
  Tensor lengths = {};    // i32 [B]: number of valid keys; undefined: all
  SplitProjection split = {};
  bool causal = true;   // false if lengths say what a token sees
  int64_t longest = 0;  // the greatest length that a row may reach; 0: T

  AttentionContext context() const {
    return {.lengths = lengths,
        .causal = causal,
        .starts = starts,
        .positions = positions,
        .longest = longest,
        .split = split};
  }
};

// Generation's two graphs. Prompts are tokens i32 [B, T] from position 0, followed by padding, which decoding
// overwrites. A step is tokens i32 [R], each at its own position.
TokenRows prompt_rows(Tensor tokens, const CacheSlots& cache);
TokenRows step_rows(Tensor tokens, const DecodeStep& step);

struct CausalModel : Module {
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_length() const = 0;  // the most positions a row may have
  // The length for training and scoring if none is asked for: a model may act differently on longer texts.
  virtual int64_t usual_length() const { return max_length(); }
  // > 0: a position sees only the last `window` ones, its own included, from step.starts on.
  virtual int64_t window() const { return 0; }

  virtual Tensor hidden(const TokenRows& rows) = 0;  // the last layer's normalized states [B, T, D]
  virtual Tensor head_weight() = 0;                  // [V, D], logits = hidden weight^T; often the token embedding
  // Added to the mean loss in training, for the last traced hidden(); undefined: nothing.
  virtual Tensor training_loss() { return {}; }
  virtual double logit_cap() const { return 0; }  // > 0: logits are cap * tanh(hidden weight^T / cap)

  Tensor logits(Tensor hidden);  // [..., D] -> [..., V]
};

// Next-token loss. Inputs: "tokens", "targets" i32 [batch, length], negative: left out; packed: "positions", "starts".
Loss causal_loss(
    CausalModel& model, Trace& trace, int64_t batch, int64_t length, bool packed = false, double label_smoothing = 0);

// Losses for pairs of a chosen and a rejected answer.
enum class PreferenceKind { kDpo, kIpo, kOrpo };

struct PreferenceOptions {
  PreferenceKind kind = PreferenceKind::kDpo;
  double beta = 0.1;
  double label_smoothing = 0;  // of kDpo
};

// The mean over pairs of a loss of log p(answer | prompt); d is the difference between chosen and rejected answer, of
// the model less that of a reference:
//   kDpo   -log sigmoid(beta d), Rafailov et al. 2023; label_smoothing s: (1 - s) of it and s of that of -d
//   kIpo   (d - 1 / (2 beta))^2 of log probabilities by token, Azar et al. 2023
//   kOrpo  -log p(chosen) - beta log sigmoid(log odds(chosen) / odds(rejected)), by token, Hong et al. 2024
// Inputs: "tokens", "targets" i32 [2 pairs, length], chosen answers before rejected ones; targets are negative but for
// answer tokens, of which each row has one or more. "reference" f32 [2 pairs]: the evaluation with the reference's
// weights. "weights" f32 [pairs]: 0 for rows left out, otherwise 1. Evaluation outputs "log_probabilities" f32
// [2 pairs], of kOrpo by token.
Loss preference_loss(CausalModel& model, Trace& trace, int64_t pairs, int64_t length, const PreferenceOptions& options);
}  // namespace linnet

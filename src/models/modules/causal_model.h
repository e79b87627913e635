// What next-token training, scoring and generation need of a decoder: Gpt, and any model like it.
#pragma once
#include "models/modules/key_value_cache.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

// Rows of tokens. A row may hold several documents one after another ("packed"): then `positions` start again with each
// of them, and `starts` says where the document of a token begins, before which it sees nothing.
struct TokenRows {
  Tensor tokens;          // i32 [B, T]
  Tensor positions = {};  // i32 [B, T]; undefined: 0, 1, 2, ... in every row
  Tensor starts = {};     // i32 [B, T]; undefined: 0
  Tensor lengths = {};    // i32 [B], of keys that count; undefined: all
  SplitProjection split = {};
  bool causal = true;   // false where lengths say what a token sees
  int64_t longest = 0;  // the most tokens that a row may come to have; 0: T

  AttentionContext context() const {
    return {.lengths = lengths,
            .causal = causal,
            .starts = starts,
            .positions = positions,
            .longest = longest,
            .split = split};
  }
};

// Generation's two graphs. A prompt, tokens i32 [B, T], each row from position 0: what follows a row's prompt is
// padding, which decoding overwrites. A step: tokens i32 [R], each at its own position.
TokenRows prompt_rows(Tensor tokens, const CacheSlots& cache);
TokenRows step_rows(Tensor tokens, const DecodeStep& step);

struct CausalModel : Module {
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_length() const = 0;  // the most positions a row may have
  // Of texts that are trained or scored where no length is asked for: a model may be another one for longer texts.
  virtual int64_t usual_length() const { return max_length(); }
  // 0, or: a position sees the last `window` ones only, its own included. Then step.starts says where they begin.
  virtual int64_t window() const { return 0; }

  // The last layer's normalized states [B, T, D].
  virtual Tensor hidden(const TokenRows& rows) = 0;
  // The output layer: logits = hidden weight^T. [V, D]; often the token embedding.
  virtual Tensor head_weight() = 0;
  // Added to the mean loss while training, of what hidden() has traced last; undefined: nothing.
  virtual Tensor training_loss() { return {}; }
  // 0, or: logits are cap * tanh(hidden weight^T / cap).
  virtual double logit_cap() const { return 0; }

  Tensor logits(Tensor hidden);  // [..., D] -> [..., V]
};

// Next-token loss. Inputs of the graph: "tokens", "targets" i32 [batch, length]; a negative target is left out. With
// `packed` also "positions" and "starts".
Loss causal_loss(CausalModel& model, Trace& trace, int64_t batch, int64_t length, bool packed = false,
                 double label_smoothing = 0);

// What a decoder learns of pairs of answers, of which one is better than the other.
enum class PreferenceKind { kDpo, kIpo, kOrpo };

struct PreferenceOptions {
  PreferenceKind kind = PreferenceKind::kDpo;
  double beta = 0.1;
  double label_smoothing = 0;  // of kDpo
};

// The mean over pairs of a loss of log p(answer | prompt), where the difference d is that of the chosen and the
// rejected answer, of the model less that of a reference:
//   kDpo   -log sigmoid(beta d), Rafailov et al. 2023; label_smoothing s: (1 - s) of it and s of that of -d
//   kIpo   (d - 1 / (2 beta))^2 of log probabilities by token, Azar et al. 2023
//   kOrpo  -log p(chosen) - beta log sigmoid(log odds(chosen) / odds(rejected)), by token, Hong et al. 2024
//
// Inputs: "tokens", "targets" i32 [2 pairs, length], all chosen answers before the rejected ones; a target is negative
// where no token of the answer follows, and each row has one that is not. "reference" f32 [2 pairs]: what evaluation
// with the reference's weights gave. "weights" f32 [pairs]: 0 for rows that are left out and 1 for others. Evaluation
// has the output "log_probabilities" f32 [2 pairs], of kOrpo by token.
Loss preference_loss(CausalModel& model, Trace& trace, int64_t pairs, int64_t length, const PreferenceOptions& options);

}  // namespace linnet

// What a decoder learns of pairs of answers, of which one is better than the other.
#pragma once
#include "models/modules/causal_model.h"

namespace linnet {

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

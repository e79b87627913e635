#include "models/modules/causal_model.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
// Log probabilities of answers, and how many tokens they have: [rows]. Each row's loss is a separate node, so that only
// a chunk of one row's logits is in memory.
std::pair<Tensor, Tensor> score_answers(CausalModel& model, Tensor hidden, Tensor targets) {
  std::vector<Tensor> scores, counts;
  for (int64_t row = 0; row < targets.dim(0); ++row) {
    const Tensor states = slice(hidden, 0, row, 1), wanted = slice(targets, 0, row, 1);
    const Tensor loss = model.logit_cap() > 0
                            ? cross_entropy_sum(model.logits(states), wanted)
                            : linear_cross_entropy_sum(states, model.head_weight(), std::nullopt, wanted);
    scores.push_back(reshape(loss, {1}));
    counts.push_back(reshape(count_targets(wanted, hidden.type().dtype), {1}));
  }
  return {concat(scores, 0) * -1.0, concat(counts, 0)};
}

// log(p / (1 - p)) of x = log p.
Tensor log_odds(Tensor x) {
  constexpr double kLeast = 1e-7;  // of 1 - p, which fp32 rounds to 0 where p is nearly 1
  return x - apply_scalar(Scalar::kLog, apply_scalar(Scalar::kMax, exp(x) * -1.0 + 1.0, kLeast));
}
}  // namespace

TokenRows prompt_rows(Tensor tokens, const CacheSlots& cache) {
  return {.tokens = tokens, .split = fill_cache(cache), .longest = cache.max_length};
}

TokenRows step_rows(Tensor tokens, const DecodeStep& step) {
  return {.tokens = reshape(tokens, {tokens.dim(0), 1}),
      .positions = step.positions(),
      .starts = step.starts,
      .lengths = step.lengths,
      .split = step_cache(step),
      .causal = false,
      .longest = step.max_length};
}

Tensor CausalModel::logits(Tensor hidden) {
  const Tensor product = matmul(hidden, head_weight(), false, true);
  const double cap = logit_cap();
  return cap > 0 ? tanh(product * (1 / cap)) * cap : product;
}

Loss causal_loss(CausalModel& model, Trace& trace, int64_t batch, int64_t length, bool packed, double label_smoothing) {
  const TensorType type{DType::kI32, {batch, length}};
  TokenRows rows{trace.input("tokens", type)};
  const Tensor targets = trace.input("targets", type);
  if (packed) rows.positions = trace.input("positions", type), rows.starts = trace.input("starts", type);
  const Tensor hidden = model.hidden(rows);
  const Tensor count = count_targets(targets, hidden.type().dtype);
  const Tensor sum = model.logit_cap() > 0 ? cross_entropy_sum(model.logits(hidden), targets, label_smoothing)
                                           : linear_cross_entropy_sum(
                                                 hidden, model.head_weight(), std::nullopt, targets, label_smoothing);
  const Tensor more = trace.options().training ? model.training_loss() : Tensor{};
  return {more.defined() ? sum + more * count : sum, count};
}

Loss preference_loss(
    CausalModel& model, Trace& trace, int64_t pairs, int64_t length, const PreferenceOptions& options) {
  const TensorType ids{DType::kI32, {2 * pairs, length}};
  const Tensor hidden = model.hidden({.tokens = trace.input("tokens", ids)});
  const DType dtype = hidden.type().dtype;
  const auto [sums, counts] = score_answers(model, hidden, trace.input("targets", ids));
  const Tensor reference = trace.input("reference", {dtype, {2 * pairs}}),
               weights = trace.input("weights", {dtype, {pairs}});
  const bool by_token = options.kind != PreferenceKind::kDpo, compares = options.kind != PreferenceKind::kOrpo;
  const Tensor means = by_token ? sums / counts : sums;
  if (!trace.options().training) trace.graph().output("log_probabilities", compares ? sums : means);
  const Tensor scores = !compares ? means : by_token ? (sums - reference) / counts : sums - reference;
  const auto difference = [&](Tensor of_rows) {
    const std::vector<Tensor> sides = split_evenly(of_rows, 0, 2);
    return sides[0] - sides[1];
  };
  Tensor losses;
  if (options.kind == PreferenceKind::kIpo) {
    losses = square(difference(scores) + -1 / (2 * options.beta));
  } else if (options.kind == PreferenceKind::kOrpo) {
    losses = softplus(difference(log_odds(scores)) * -1.0) * options.beta - slice(scores, 0, 0, pairs);
  } else {
    const Tensor z = difference(scores) * options.beta;
    losses = softplus(z * -1.0);
    if (options.label_smoothing > 0)
      losses = losses * (1 - options.label_smoothing) + softplus(z) * options.label_smoothing;
  }
  const Tensor sum = sum_to(losses * weights, {}), count = sum_to(weights, {});
  const Tensor more = trace.options().training ? model.training_loss() : Tensor{};
  return {more.defined() ? sum + more * count : sum, count};
}
}  // namespace linnet

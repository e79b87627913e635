#include "models/modules/causal_model.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {

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
                                           : linear_cross_entropy_sum(hidden, model.head_weight(), std::nullopt,
                                                                      targets, label_smoothing);
  const Tensor more = trace.options().training ? model.training_loss() : Tensor{};
  return {more.defined() ? sum + more * count : sum, count};
}

}  // namespace linnet

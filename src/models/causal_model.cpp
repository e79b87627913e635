#include "models/causal_model.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"

namespace linnet {

Tensor CausalModel::logits(Tensor hidden) { return matmul(hidden, head_weight(), false, true); }

Loss causal_loss(CausalModel& model, Trace& trace, int64_t batch, int64_t length, bool packed, double label_smoothing) {
  const TensorType type{DType::kI32, {batch, length}};
  TokenRows rows{trace.input("tokens", type)};
  const Tensor targets = trace.input("targets", type);
  if (packed) rows.positions = trace.input("positions", type), rows.starts = trace.input("starts", type);
  const Tensor hidden = model.hidden(rows);
  return {linear_cross_entropy_sum(hidden, model.head_weight(), std::nullopt, targets, label_smoothing),
          count_targets(targets, hidden.type().dtype)};
}

}  // namespace linnet

#include "models/modules/image_model.h"

#include "models/nn/trace.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

// Summed cross-entropy with two labels for each row. `share` [B, 1]: the probability of the first.
Tensor mixed_cross_entropy_sum(Tensor logits, Tensor labels, Tensor others, Tensor share, double label_smoothing) {
  const int64_t classes = logits.dim(1);
  const DType dtype = logits.type().dtype;
  const Tensor first = one_hot(labels, classes, dtype), other = one_hot(others, classes, dtype);
  const Shape row = share.shape();
  const Tensor is_row = sum_to(first, row);  // 0 where there is no label
  const Tensor target = (other + (first - other) * share) * (1 - label_smoothing) +
                        is_row * (label_smoothing / static_cast<double>(classes));
  return sum_to(is_row * log_sum_exp_last(logits) - sum_to(target * logits, row), {});
}

}  // namespace

Loss image_loss(ImageModel& model, Trace& trace, int64_t batch, double label_smoothing, bool mixed) {
  const ImageShape& s = model.images;
  const Tensor images = trace.input("images", {DType::kU8, {batch, s.height, s.width, s.channels}});
  const Tensor labels = trace.input("labels", {DType::kI32, {batch}});
  const Tensor logits = model(images);
  if (!trace.options().training) {
    trace.graph().output("predictions", argmax_last(logits));
    trace.graph().output("logits", logits);
  }
  const Tensor count = count_targets(labels, logits.type().dtype);
  if (!mixed || !trace.options().training) return {cross_entropy_sum(logits, labels, label_smoothing), count};
  const Tensor others = trace.input("other_labels", {DType::kI32, {batch}});
  const Tensor shares = trace.input("shares", {logits.type().dtype, {batch, 1}});
  return {mixed_cross_entropy_sum(logits, labels, others, shares, label_smoothing), count};
}

}  // namespace linnet

#include "models/modules/translation_loss.h"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace linnet {

Loss translation_loss(EncoderDecoder& model, Trace& trace, const TranslationSizes& sizes, double label_smoothing) {
  const auto [batch, source_length, target_length] = sizes;
  const auto ids = [&](const char* name, Shape shape) { return trace.graph().input(name, {DType::kI32, shape}); };
  const Tensor source = ids("source", {batch, source_length}), source_lengths = ids("source_lengths", {batch});
  const Tensor target_in = ids("target_in", {batch, target_length}), target_lengths = ids("target_lengths", {batch});
  const Tensor targets = mask_targets(ids("target_out", {batch, target_length}), target_lengths);
  const Tensor sum = model.loss(source, source_lengths, target_in, target_lengths, targets, label_smoothing);
  return {sum, count_targets(targets, sum.type().dtype)};
}

}  // namespace linnet

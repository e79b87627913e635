#include "models/image_model.h"

#include "nn/trace.h"
#include "ops/argmax/argmax.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace linnet {

Loss image_loss(ImageModel& model, Trace& trace, int64_t batch, double label_smoothing) {
  const ImageShape& s = model.images;
  const Tensor images = trace.input("images", {DType::kU8, {batch, s.height, s.width, s.channels}});
  const Tensor labels = trace.input("labels", {DType::kI32, {batch}});
  const Tensor logits = model(images);
  if (!trace.options().training) {
    trace.graph().output("predictions", argmax_last(logits));
    trace.graph().output("logits", logits);
  }
  return {cross_entropy_sum(logits, labels, label_smoothing), count_targets(labels, logits.type().dtype)};
}

}  // namespace linnet

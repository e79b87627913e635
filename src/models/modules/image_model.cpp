#include "models/modules/image_model.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
// Targets of two labels for each row. `share` [B, 1]: the probability of the first.
Tensor mixed_target(Tensor labels, Tensor others, Tensor share, int64_t classes, double label_smoothing) {
  const DType dtype = share.type().dtype;
  const Tensor first = one_hot(labels, classes, dtype), other = one_hot(others, classes, dtype);
  const Tensor is_row = sum_to(first, share.shape());  // 0 where there is no label
  return (other + (first - other) * share) * (1 - label_smoothing) +
         is_row * (label_smoothing / static_cast<double>(classes));
}

Tensor traced_logits(ImageModel& model, Trace& trace, int64_t batch) {
  const ImageShape& s = model.images;
  const Tensor logits = model(trace.input("images", {DType::kU8, {batch, s.height, s.width, s.channels}}));
  if (!trace.options().training) trace.graph().output("logits", logits);
  return logits;
}

// As PyTorch initializes convolutions and their biases.
Initializer fan_in_uniform(int64_t fan_in) { return uniform_init(1 / std::sqrt(static_cast<double>(fan_in))); }
}  // namespace

Loss image_label_loss(ImageModel& model, Trace& trace, int64_t batch) {
  const Tensor logits = traced_logits(model, trace, batch);
  return label_loss(trace, logits, model.class_weights.tensor(trace));
}

Loss image_number_loss(ImageModel& model, Trace& trace, int64_t batch) {
  return number_loss(trace, traced_logits(model, trace, batch));
}

Loss image_loss(ImageModel& model, Trace& trace, int64_t batch, double label_smoothing, bool mixed) {
  const Tensor logits = traced_logits(model, trace, batch);
  const Tensor labels = trace.input("labels", {DType::kI32, {batch}});
  if (!trace.options().training) trace.graph().output("predictions", argmax_last(logits));
  const Tensor count = count_targets(labels, logits.type().dtype);
  const Tensor weights = model.class_weights.tensor(trace);
  if (!mixed || !trace.options().training)
    return {weighted_cross_entropy_sum(logits, labels, label_smoothing, weights), count};
  const Tensor others = trace.input("other_labels", {DType::kI32, {batch}});
  const Tensor shares = trace.input("shares", {logits.type().dtype, {batch, 1}});
  const Tensor target = mixed_target(labels, others, shares, model.images.classes, label_smoothing);
  return {soft_cross_entropy_sum(logits, weights.defined() ? target * weights : target), count};
}

ConvPool::ConvPool(Module* parent, std::string name, int64_t channels, int64_t filters)
    : Module(parent, std::move(name)), weight{this, "weight", {filters, 3, 3, channels}, fan_in_uniform(9 * channels)},
      bias{this, "bias", {filters}, fan_in_uniform(9 * channels)} {}

Tensor ConvPool::operator()(At images, const PixelScaling& scaling) {
  ModuleScope scope(*this);
  return conv_relu_pool(images, weight, bias, scaling);
}

Cnn::Cnn(const CnnConfig& config)
    : ImageModel({config.height, config.width, config.channels, config.classes}, config.mean, config.deviation),
      config(config), conv{this, "conv", config.channels, config.filters}, head{this, "head",
                                                                               config.height / 2 * (config.width / 2) *
                                                                                   config.filters,
                                                                               config.classes} {}

Tensor Cnn::operator()(At images) {
  const Tensor pooled = conv(images, scaling);
  return head(reshape(At(pooled, images.where), {pooled.dim(0), pooled.shape().elements(1, 4)}));
}
}  // namespace linnet

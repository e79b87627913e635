#include "models/modules/cnn.h"
#include <cmath>
#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

// U(-a, a), a = 1 / sqrt(fan_in), as PyTorch initializes convolutions and their biases.
Initializer fan_in_uniform(int64_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return [bound](std::span<float> values, const Shape&, const auto& uniform) {
    for (float& value : values) value = static_cast<float>((2 * uniform() - 1) * bound);
  };
}

}  // namespace

ConvPool::ConvPool(Module* parent, std::string name, int64_t channels, int64_t filters)
    : Module(parent, std::move(name)),
      weight{this, "weight", {filters, 3, 3, channels}, fan_in_uniform(9 * channels)},
      bias{this, "bias", {filters}, fan_in_uniform(9 * channels)} {}

Tensor ConvPool::operator()(At images, const PixelScaling& scaling) {
  ModuleScope scope(*this);
  return conv_relu_pool(images, weight, bias, scaling);
}

Cnn::Cnn(const CnnConfig& config)
    : ImageModel({config.height, config.width, config.channels, config.classes}, config.mean, config.deviation),
      config(config),
      conv{this, "conv", config.channels, config.filters},
      head{this, "head", config.height / 2 * (config.width / 2) * config.filters, config.classes} {}

Tensor Cnn::operator()(At images) {
  const Tensor pooled = conv(images, scaling);
  return head(reshape(At(pooled, images.where), {pooled.dim(0), pooled.shape().elements(1, 4)}));
}

}  // namespace linnet

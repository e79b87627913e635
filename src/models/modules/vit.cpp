#include "models/modules/vit.h"
#include "base/fail.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "models/nn/activation_observer.h"

namespace linnet {
namespace {
constexpr double kVitDeviation = 0.02;  // of initial weights

const VitConfig& checked(const VitConfig& config) {
  const ImageShape& images = config.images;
  if (images.height % config.patch != 0 || images.width % config.patch != 0)
    fail_user("images of ", images.height, " x ", images.width, " pixels cannot be cut into patches of ", config.patch,
        " x ", config.patch, " (patch_size; image_size scales images)");
  if (config.width % config.heads != 0)
    fail_user("a width of ", config.width, " is not divisible by ", config.heads, " heads");
  return config;
}

LayerConfig layer_config(const VitConfig& config) {
  return {.width = config.width,
      .heads = config.heads,
      .hidden = config.hidden,
      .dropout = config.dropout,
      .hidden_dropout = 0,
      .norm_place = NormPlace::kInput,
      .activation = config.activation,
      .epsilon = config.epsilon,
      .weights = normal_init(kVitDeviation),
      .residual = normal_init(kVitDeviation),
      .attention_dropout = config.attention_dropout,
      .biases = {.attention = config.biases}};
}
}  // namespace

PatchProjection::PatchProjection(Module* parent, std::string name, const VitConfig& config)
    : Module(parent, std::move(name)), weight{this, "weight",
                                           {config.width, config.patch, config.patch, config.images.channels},
                                           normal_init(kVitDeviation)},
      bias{this, "bias", {config.width}, constant_init(0)} {}

// Convolution windows do not overlap, so it is a product of patches and filters.
Tensor PatchProjection::operator()(At images) {
  ModuleScope scope(*this);
  const Shape& filter = weight.spec().shape;
  const int64_t width = filter[0], side = filter[1], channels = filter[3], elements = side * side * channels;
  const Shape s = images.value.shape();
  const int64_t rows = s[1] / side, columns = s[2] / side;
  const Tensor cut = permute(reshape(images, {s[0], rows, side, columns, side * channels}), {0, 1, 3, 2, 4});
  const Tensor pixels = reshape(cut, {s[0], rows * columns, elements});
  watch_input(weight.spec(), pixels);
  return matmul(pixels, reshape(weight.tensor(), {width, elements}), false, true) + bias.tensor();
}

Vit::Vit(const VitConfig& vit)
    : ImageModel(vit.images, vit.mean, vit.deviation),
      config(checked(vit)), cls_token{this, "cls_token", {1, 1, vit.width}, normal_init(kVitDeviation)},
      patches{this, "patches", vit}, positions{this, "positions", {1, 1 + vit.patches(), vit.width},
                                         normal_init(kVitDeviation)},
      dropout{this, "dropout", static_cast<float>(vit.dropout)}, layers{this, "layers", vit.layers, layer_config(vit)},
      norm{this, "norm", vit.width, vit.epsilon}, classifier{this, "classifier", vit.width, vit.images.classes,
                                                      normal_init(kVitDeviation)} {}

Tensor Vit::logits(At images) {
  const int64_t batch = images.value.dim(0);
  const Tensor tokens = patches(images);
  const Tensor first = broadcast_to(cls_token.tensor(), {batch, 1, config.width});
  Tensor x = dropout(concat(first, std::array{tokens}, 1) + positions.tensor());
  for (EncoderLayer& layer : layers) x = layer(x, {});
  return classifier(norm(reshape(slice(x, 1, 0, 1), {batch, config.width})));
}
}  // namespace linnet

// A vision Transformer (Dosovitskiy et al. 2021): square patches are projected to tokens after a learned first token,
// whose state behind pre-LN layers is classified. Defaults: vit-base-patch16-224.
#pragma once
#include "models/modules/blocks.h"
#include "models/modules/image_model.h"

namespace linnet {
struct VitConfig {
  ImageShape images = {224, 224, 3, 1000};
  int64_t patch = 16;  // side of a patch in pixels; it divides height and width
  int64_t width = 768, heads = 12, layers = 12, hidden = 3072;
  double dropout = 0;                            // of embeddings and of each sub-layer's result
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  Activation activation = Activation::kGelu;
  double epsilon = 1e-12;                         // of the norms
  bool biases = true;                             // of the projections to queries, keys and values
  std::vector<double> mean = {}, deviation = {};  // see ImageModel

  int64_t patches() const { return images.height / patch * (images.width / patch); }
};

// Patches of [B, H, W, C] to tokens [B, H / patch * W / patch, width], row by row. weight: [width, patch, patch, C].
struct PatchProjection : Module {
  PatchProjection(Module* parent, std::string name, const VitConfig& config);
  Tensor operator()(At images);

  Parameter weight, bias;
};

struct Vit : ImageModel {
  explicit Vit(const VitConfig& config);  // user error if patches do not divide the images, or heads the width
  Tensor operator()(At images) override { return logits(scale_pixels(images, scaling)); }
  Tensor logits(At images);  // of scaled images: floats [B, H, W, C] -> logits [B, classes]

  const VitConfig config;
  Parameter cls_token;  // [1, 1, width]
  PatchProjection patches;
  Parameter positions;  // [1, 1 + patches, width]
  Dropout dropout;
  ModuleList<EncoderLayer> layers;
  LayerNorm norm;
  Linear classifier;
};
}  // namespace linnet

// The interface of models for the image task: bytes of images of one size to logits.
#pragma once
#include "engine/ops/pool/pool.h"
#include "models/modules/losses.h"
#include "models/nn/layers.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {
struct ImageShape {
  int64_t height = 28, width = 28, channels = 1, classes = 10;
};

class ImageModel : public Module {
 public:
  // mean, deviation: per channel, for pixels from 0 to 1 (channel_moments() in data/examples/images/image_dataset.h);
  // empty: 0 and 1. Part of the model. User error if they do not fit the channels.
  ImageModel(const ImageShape& images, const std::vector<double>& mean, const std::vector<double>& deviation)
      : images(images), scaling(pixel_scaling(images.channels, mean, deviation)) {}

  virtual Tensor operator()(At images) = 0;  // u8 [B, height, width, channels] -> logits [B, classes]

  const ImageShape images;
  const PixelScaling scaling;
  ClassWeights class_weights;
};

// Cross-entropy. Inputs: "images" u8 [B, height, width, channels], "labels" i32 [B]; rows with a negative label are
// left out. Evaluation outputs "predictions" i32 [B], the likeliest classes, and "logits" [B, classes]. `mixed`:
// training images are blends of two; inputs "other_labels" i32 [B] and "shares" f32 [B, 1], the part of the first.
Loss image_loss(ImageModel& model, Trace& trace, int64_t batch, double label_smoothing = 0, bool mixed = false);
// label_loss() or number_loss() (models/modules/losses.h) of "images". Evaluation has the output "logits".
Loss image_label_loss(ImageModel& model, Trace& trace, int64_t batch);
Loss image_number_loss(ImageModel& model, Trace& trace, int64_t batch);

// A small image classifier: 3x3 convolution (zero padding), ReLU, 2x2 max-pooling, one linear layer. With 28x28 grey
// images, 16 filters and 10 classes: 31,530 parameters, about 98.5% on MNIST's test images.
struct CnnConfig {
  int64_t height = 28, width = 28, channels = 1, filters = 16, classes = 10;
  std::vector<double> mean = {}, deviation = {};  // see ImageModel
};

// conv_relu_pool (ops/pool) with its parameters. Images: u8 [N, H, W, C], or floats already scaled.
struct ConvPool : Module {
  ConvPool(Module* parent, std::string name, int64_t channels, int64_t filters);
  Tensor operator()(At images, const PixelScaling& scaling = {});

  Parameter weight, bias;  // [filters, 3, 3, channels], [filters]
};

struct Cnn : ImageModel {
  explicit Cnn(const CnnConfig& config);
  Tensor operator()(At images) override;

  const CnnConfig config;
  ConvPool conv;
  Linear head;
};
}  // namespace linnet

// A small image classifier: 3x3 convolution (zeros around the image), ReLU, 2x2 max-pooling, one linear layer. For
// 28x28 grey images, 16 filters and 10 classes 31,530 parameters, and about 98.5% of MNIST's test images.
#pragma once
#include <vector>

#include "nn/layers.h"
#include "nn/loss.h"
#include "ops/pixels/pixels.h"

namespace linnet {

struct CnnConfig {
  int64_t height = 28, width = 28, channels = 1, filters = 16, classes = 10;
  // Of each channel of the training images, for pixels from 0 to 1 (data/images/image_dataset.h channel_moments);
  // empty: 0 and
  // 1. Part of the model: images are given as bytes.
  std::vector<double> mean = {}, deviation = {};
};

// conv_relu_pool (ops/conv_pool) with its parameters. Images u8 [N, H, W, C], or floats already scaled.
struct ConvPool : Module {
  ConvPool(Module* parent, std::string name, int64_t channels, int64_t filters);
  Tensor operator()(At images, const PixelScaling& scaling = {});

  Parameter weight, bias;  // [filters, 3, 3, channels], [filters]
};

struct Cnn : Module {
  explicit Cnn(const CnnConfig& config);  // user error where mean and deviation do not fit the channels
  Tensor operator()(At images);           // u8 [B, height, width, channels] -> logits [B, classes]

  const CnnConfig config;
  const PixelScaling scaling;
  ConvPool conv;
  Linear head;
};

// Cross-entropy of a batch. Inputs of the graph: "images" u8 [B, height, width, channels] and "labels" i32 [B]; rows
// with a negative label count for nothing. Outside of training the graph also has the outputs "predictions"
// i32 [B], each row's most likely class, and "logits" [B, classes].
Loss cnn_loss(Cnn& model, Trace& trace, int64_t batch);

}  // namespace linnet

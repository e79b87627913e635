// What the image task asks of a model: logits of images of one size, which come as bytes.
#pragma once
#include "engine/ops/pixels/pixels.h"
#include "models/modules/losses.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"

namespace linnet {

struct ImageShape {
  int64_t height = 28, width = 28, channels = 1, classes = 10;
};

class ImageModel : public Module {
 public:
  // mean, deviation: of each channel of the training images (data/examples/images/image_dataset.h channel_moments), for
  // pixels from 0 to 1; empty: 0 and 1. Part of the model. User error where they do not fit the channels.
  ImageModel(const ImageShape& images, const std::vector<double>& mean, const std::vector<double>& deviation)
      : images(images), scaling(pixel_scaling(images.channels, mean, deviation)) {}

  virtual Tensor operator()(At images) = 0;  // u8 [B, height, width, channels] -> logits [B, classes]

  const ImageShape images;
  const PixelScaling scaling;
  ClassWeights class_weights;
};

// Cross-entropy of a batch. Inputs of the graph: "images" u8 [B, height, width, channels] and "labels" i32 [B]; rows
// with a negative label count for nothing. Outside of training the graph also has the outputs "predictions" i32 [B],
// each row's most likely class, and "logits" [B, classes]. `mixed`: in training images are blends of two; the inputs
// "other_labels" i32 [B] and "shares" f32 [B, 1] say what with, and how much of the image has the first label.
Loss image_loss(ImageModel& model, Trace& trace, int64_t batch, double label_smoothing = 0, bool mixed = false);
// label_loss() or number_loss() of a batch of "images" (models/modules/losses.h). Outside of training the graph
// also has the output "logits".
Loss image_label_loss(ImageModel& model, Trace& trace, int64_t batch);
Loss image_number_loss(ImageModel& model, Trace& trace, int64_t batch);

}  // namespace linnet

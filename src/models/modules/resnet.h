// Residual networks (He et al. 2016) with torchvision's layers and parameter names.
// Depths 18, 34, 50, 101 and 152, for large images: a 7x7 convolution of stride 2, 3x3 max-pooling of stride 2 and four
// stages of 64 to 512 channels. Depths 6 n + 2 (20, 32, 44, 56), for small ones: a 3x3 convolution and three stages of
// n blocks with 16, 32 and 64 channels. If channels or size change, the shortcut is a 1x1 convolution with batch
// normalization. Images are [N, H, W, C]; filters [O, R, S, C] ([O, C, R, S] in torchvision).
#pragma once
#include "models/modules/image_model.h"
#include "models/nn/layers.h"

namespace linnet {
struct ResNetConfig {
  int64_t depth = 20;
  ImageShape images = {32, 32, 3, 10};
  std::vector<double> mean = {}, deviation = {};  // see ImageModel
};

// A convolution without bias: [N, H, W, in] -> [N, H', W', out]. Zero padding keeps the size at stride 1.
struct FilterLayer : Module {
  FilterLayer(Module* parent, std::string name, int64_t in, int64_t out, int64_t window, int64_t stride = 1);
  Tensor operator()(At x);
  void train_quantized(float step);  // as Linear's

  int64_t stride;
  Parameter weight;                     // [out, window, window, in]
  std::optional<Parameter> input_step;  // [1]: the step of x, as of Linear; usually none
};

// Quantization-aware training for static int8: linear layers and convolutions round weights and inputs as the finished
// model will (ops/quantized). The step of each input is a parameter, "LAYER.input_step" [1], the layer's scale in
// static int8. Weights are rounded by the quantizer that packs them (engine/kernels/quantized/packed_weight.h), without
// steps. Adds a step to each layer that `int8` quantizes. Returns their number.
int64_t train_quantized(Module& model);

struct Shortcut : Module {
  Shortcut(Module* parent, std::string name, int64_t in, int64_t out, int64_t stride);
  Tensor operator()(At x);

  FilterLayer conv;  // "0"
  BatchNorm norm;    // "1"
};

// Two 3x3 convolutions; a bottleneck has 1x1, 3x3 and 1x1 with four times as many channels at the end.
struct ResidualBlock : Module {
  ResidualBlock(Module* parent, std::string name, int64_t in, int64_t width, int64_t stride, bool bottleneck);
  Tensor operator()(At x);

  FilterLayer conv1;
  BatchNorm bn1;
  FilterLayer conv2;
  BatchNorm bn2;
  std::optional<FilterLayer> conv3;
  std::optional<BatchNorm> bn3;
  std::optional<Shortcut> downsample;
};

// The depth of the network with so many blocks in its stages; 0: none.
int64_t resnet_depth(std::span<const int64_t> blocks, bool bottleneck);

struct ResNet : ImageModel {
  explicit ResNet(const ResNetConfig& config);  // user error naming the depths there are
  Tensor operator()(At images) override;
  Tensor logits(At x);  // of scaled images: floats [N, H, W, C] -> logits

  const ResNetConfig config;
  FilterLayer conv1;
  BatchNorm bn1;
  std::deque<ModuleList<ResidualBlock>> stages;  // layer1, layer2, ...
  std::unique_ptr<Linear> fc;
};
}  // namespace linnet

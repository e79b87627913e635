// More layers: convolutions, norms, pooling, and modules one after another. linnet/layers.h has Linear, LayerNorm,
// BatchNorm, Embedding and Dropout.
//
// Names and layouts of parameters are PyTorch's, except that filters of convolutions have their channels last. Each
// layer throws Error(kUser) for sizes that make no sense when it is constructed, and Error(kShape) naming the line and
// the module when it is given a tensor that does not fit.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>
#include "linnet/layers.h"
#include "linnet/ops.h"

namespace linnet {
// y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang & Sennrich 2019).
struct RmsNorm : LayerNorm {
  // `width`: size of the last axis.
  RmsNorm(Module* parent, std::string name, int64_t width, double variance_floor = 1e-6)
      : LayerNorm(parent, std::move(name), width, variance_floor, NormKind::kRms) {}
};

// Group normalization (Wu & He 2018): x [N, ..., channels] is normalized in each sample over all positions and the
// channels of each of `groups` groups.
struct GroupNorm : Module {
  // channels is a multiple of groups.
  GroupNorm(Module* parent, std::string name, int64_t groups, int64_t channels, double epsilon = 1e-5);
  // Applies it: [N, ..., channels] -> [N, ..., channels].
  Tensor operator()(At x);

  // Groups of neighboring channels.
  int64_t groups;
  // [channels]
  Parameter weight;
  // [channels]
  Parameter bias;
  // Added to the variance.
  double epsilon;
};

// How a Conv2d moves its filters.
struct Conv2dOptions {
  // Pixels from one position to the next.
  int64_t stride = 1;
  // Zeros around the image.
  int64_t padding = 0;
  // Pixels from one element of a filter to the next.
  int64_t dilation = 1;
  // The channels in and out are cut into so many groups, each with filters of its own; as many as channels: depthwise.
  int64_t groups = 1;
  // Whether a bias is added.
  bool bias = true;
  // Of the filters; empty: He's rule for ReLU.
  Initializer initializer = {};
  // Of filters that are not square; below 0: as wide as high.
  int64_t width = -1;
  // Zeros on the left and right; below 0: as many as `padding`.
  int64_t padding_width = -1;
};

// Convolution of images: x [N, H, W, in] -> [N, H', W', out], H' = (H + 2 padding - dilation (size - 1) - 1) / stride
// + 1.
struct Conv2d : Module {
  // Filters of size x size, or size x options.width.
  Conv2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& options = {});
  // Applies it.
  Tensor operator()(At x);

  // As constructed.
  Conv2dOptions options;
  // [out, size, width, in / groups]
  Parameter weight;
  // [out]
  std::optional<Parameter> bias;
};

// Convolution along sequences: x [N, L, in] -> [N, L', out]; see conv1d().
struct Conv1d : Module {
  // Filters of `size` positions. Options without a width.
  Conv1d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& options = {});
  // Applies it.
  Tensor operator()(At x);

  // As constructed.
  Conv2dOptions options;
  // [out, size, in / groups]
  Parameter weight;
  // [out]
  std::optional<Parameter> bias;
};

// Transposed convolution, which makes images larger: x [N, H, W, in] -> [N, H', W', out]; see conv_transpose2d().
struct ConvTranspose2d : Module {
  // Filters of size x size. Options without a width. `output_padding`: rows and columns more, on the right and below.
  ConvTranspose2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size,
      const Conv2dOptions& options = {}, int64_t output_padding = 0);
  // Applies it.
  Tensor operator()(At x);

  // As constructed.
  Conv2dOptions options;
  // As constructed.
  int64_t output_padding;
  // [in, size, size, out / groups]
  Parameter weight;
  // [out]
  std::optional<Parameter> bias;
};

// A convolution with 3 x 3 filters and zeros around the image, ReLU and max pooling of 2 x 2, in one pass over memory:
// several times as fast as the three one after another. x [N, H, W, in], f32 or u8, -> [N, H / 2, W / 2, out].
struct ConvReluPool : Module {
  // Bytes (u8) are scaled to (x / 255 - mean[c]) / deviation[c]; empty lists: to [0, 1].
  ConvReluPool(Module* parent, std::string name, int64_t in, int64_t out, const std::vector<double>& mean = {},
      const std::vector<double>& deviation = {});
  // Applies it.
  Tensor operator()(At x);

  // [out, 3, 3, in]
  Parameter weight;
  // [out]
  Parameter bias;
  // Of u8 images, by channel.
  std::vector<double> mean;
  // Of u8 images, by channel.
  std::vector<double> deviation;
};

// The largest element of each window; see max_pool().
struct MaxPool {
  // Windows of size x size.
  int64_t size = 2;
  // From one window to the next; 0: size.
  int64_t stride = 0;
  // x [N, H, W, C] -> [N, H', W', C].
  Tensor operator()(At x) const { return max_pool(x, size, stride); }
};

// The mean of each window; see avg_pool().
struct AvgPool {
  // Windows of size x size.
  int64_t size = 2;
  // x [N, H, W, C] -> [N, H / size, W / size, C].
  Tensor operator()(At x) const { return avg_pool(x, size); }
};

// Modules and functions applied one after another. Each is named by its number from 0, functions counted, as PyTorch
// does.
//
//   Sequential net{this, "net"};
//   net.add<Linear>(784, 128);  net.add(relu);  net.add<Linear>(128, 10);
class Sequential : public Module {
 public:
  // Nothing yet: the identity.
  Sequential(Module* parent, std::string name);
  // Adds Layer(this, name, arguments...) and returns it.
  template <class Layer, class... Arguments> Layer& add(Arguments&&... arguments) {
    auto layer =
        std::make_unique<Layer>(this, std::to_string(functions_.size()), std::forward<Arguments>(arguments)...);
    Layer& added = *layer;
    layers_.push_back(std::move(layer));
    functions_.push_back([&added](At x) { return added(x); });
    return added;
  }
  // Adds a function of a tensor, such as relu or MaxPool{2}.
  Sequential& add(std::function<Tensor(At)> function);
  // The same of a lambda or another object.
  template <class Function>
  requires std::is_class_v<Function> && std::invocable<Function&, At> Sequential& add(Function function) {
    return add(std::function<Tensor(At)>(std::move(function)));
  }
  // Adds a function of a tensor by its name; for names of functions with several forms.
  Sequential& add(Tensor (*function)(At));
  // How many modules and functions there are.
  size_t size() const { return functions_.size(); }
  // Applies all of them.
  Tensor operator()(At x);

 private:
  std::deque<std::unique_ptr<Module>> layers_;
  std::vector<std::function<Tensor(At)>> functions_;
};
}  // namespace linnet

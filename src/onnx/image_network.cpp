#include "onnx/image_network.h"

#include "base/error.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

std::string sizes_text(const std::vector<OnnxDim>& dims) {
  std::string text;
  for (const OnnxDim& dim : dims)
    text += (text.empty() ? "" : " x ") + (dim.size >= 0 ? std::to_string(dim.size) : std::string("?"));
  return text;
}

// The first axis is the batch; a size that the network leaves open fits.
void check_sizes(const OnnxValueInfo& input, const std::vector<int64_t>& images) {
  for (size_t i = 0; i < images.size(); ++i)
    if (input.dims[i + 1].size >= 0 && input.dims[i + 1].size != images[i])
      fail_user("the network takes images of " + sizes_text({input.dims.begin() + 1, input.dims.end()}) +
                ", and the data's are " + sizes_text({{images[0]}, {images[1]}, {images[2]}}) +
                " (data.image_size scales them)");
}

}  // namespace

OnnxImageModel::OnnxImageModel(std::unique_ptr<OnnxNetwork> network, const ImageShape& images,
                               const std::vector<double>& mean, const std::vector<double>& deviation)
    : ImageModel(images, mean, deviation), network_(std::move(network)) {
  network_->check_trainable();
  const std::vector<OnnxValueInfo>& inputs = network_->inputs();
  if (inputs.size() != 1 || (inputs[0].has_shape && inputs[0].dims.size() != 4) || network_->outputs().size() != 1)
    fail_user("a network for images takes one tensor of four axes and gives one; this one has " +
              std::to_string(inputs.size()) + " inputs and " + std::to_string(network_->outputs().size()) + " outputs");
  takes_bytes_ = inputs[0].element == OnnxElement::kUint8;
  if (inputs[0].has_shape && takes_bytes_) check_sizes(inputs[0], {images.height, images.width, images.channels});
  if (inputs[0].has_shape && !takes_bytes_) check_sizes(inputs[0], {images.channels, images.height, images.width});
  adopt(*network_, "");
}

Tensor OnnxImageModel::operator()(At x) {
  const Tensor pixels = takes_bytes_ ? x.value : permute(scale_pixels(x, scaling), {0, 3, 1, 2});
  const Tensor logits = network_->run({{network_->inputs()[0].name, pixels}}).begin()->second;
  const Shape expected{x.value.dim(0), images.classes};
  if (logits.shape() != expected)
    fail_user("the network gives " + logits.shape().text() + " for " + std::to_string(expected[0]) + " images of " +
              std::to_string(images.classes) + " classes: logits of shape " + expected.text() + " are needed");
  return logits;
}

}  // namespace linnet

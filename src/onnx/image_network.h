// An imported network that tells the classes of images: it is trained, evaluated and exported like the other models of
// task = "images".
#pragma once
#include <memory>

#include "models/modules/image_model.h"
#include "onnx/network.h"

namespace linnet {

class OnnxImageModel : public ImageModel {
 public:
  // The network takes one tensor, floats [N, channels, height, width] of normalized pixels, or bytes [N, height, width,
  // channels] that it normalizes itself, and gives the classes' logits. User error where it does not, or where its
  // sizes are not those of the images.
  OnnxImageModel(std::unique_ptr<OnnxNetwork> network, const ImageShape& images, const std::vector<double>& mean,
                 const std::vector<double>& deviation);
  Tensor operator()(At images) override;

  const OnnxNetwork& network() const { return *network_; }

 private:
  std::unique_ptr<OnnxNetwork> network_;
  bool takes_bytes_;
};

}  // namespace linnet

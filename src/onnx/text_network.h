// An imported text classifier, trained, evaluated and exported like the BERTs of task = "classification".
#pragma once
#include <memory>
#include <optional>
#include <string>
#include "models/modules/image_model.h"
#include "models/modules/losses.h"
#include "models/nn/layers.h"
#include "models/nn/parameter_layout.h"
#include "onnx/network.h"

namespace linnet {
class OnnxTextModel : public TextClassifier {
 public:
  // The network takes "input_ids" and "attention_mask", and maybe "token_type_ids" and "position_ids", whole numbers
  // [B, T] of open sizes. Classes come from the first that it gives:
  // - "logits" [B, classes], or an only output of two axes;
  // - "pooler_output" [B, D] and an added linear layer;
  // - states [B, T, D], preferably "last_hidden_state": their mean over the text and a linear layer.
  // `classes` 0: the logits', or two. `longest`: tokens of a text. User error for an unsuitable or quantized network.
  OnnxTextModel(std::unique_ptr<OnnxNetwork> network, int64_t classes, int64_t longest);
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return longest_; }

  const OnnxNetwork& network() const { return *network_; }
  int64_t classes() const { return classes_; }
  // The network with values of `parameters`, and any added layer, with output "logits". This and the buffer outlive it.
  OnnxModel with_parameters(const ParameterLayout& layout, const float* parameters) const;

 private:
  enum class Output { kLogits, kPooled, kStates };
  void check_inputs() const;
  void choose_output();
  std::map<std::string, Tensor> inputs_of(Tensor tokens, Tensor lengths, Tensor types) const;

  std::unique_ptr<OnnxNetwork> network_;
  int64_t classes_;
  const int64_t longest_;
  std::string output_;
  Output kind_ = Output::kLogits;
  std::optional<Linear> head_;
};

// An imported image classifier, trained, evaluated and exported like other models of task = "images".

class OnnxImageModel : public ImageModel {
 public:
  // The network takes one tensor, normalized floats [N, channels, height, width] or bytes [N, height, width, channels],
  // and gives the classes' logits. User error for another form or image size.
  OnnxImageModel(std::unique_ptr<OnnxNetwork> network, const ImageShape& images, const std::vector<double>& mean,
      const std::vector<double>& deviation);
  Tensor operator()(At images) override;

  const OnnxNetwork& network() const { return *network_; }

 private:
  std::unique_ptr<OnnxNetwork> network_;
  bool takes_bytes_;
};

// The number of channels that the input of such a network declares; -1: any.
int64_t image_channels(const OnnxNetwork& network);
}  // namespace linnet

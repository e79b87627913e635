// An imported network that tells the classes of texts: it is trained, evaluated and exported like the BERTs of
// task = "classification".
#pragma once
#include <memory>
#include <optional>
#include <string>
#include "models/modules/image_model.h"
#include "models/modules/text_classifier.h"
#include "models/nn/layers.h"
#include "models/nn/parameter_layout.h"
#include "onnx/network.h"

namespace linnet {

class OnnxTextModel : public TextClassifier {
 public:
  // The network takes "input_ids" and "attention_mask", and maybe "token_type_ids" and "position_ids", whole numbers
  // [B, T] with both sizes open. Its classes are told by, the first that it gives:
  // - "logits" [B, classes], or an only output of two axes;
  // - "pooler_output" [B, D] and a linear layer that is added;
  // - states [B, T, D], "last_hidden_state" if it has that name: their mean over the text and a linear layer.
  // `classes`: 0: those of the network's logits, or two. `longest`: tokens of a text. User error of one line where the
  // network does not fit, or where it is quantized.
  OnnxTextModel(std::unique_ptr<OnnxNetwork> network, int64_t classes, int64_t longest);
  Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) override;
  int64_t max_length() const override { return longest_; }

  const OnnxNetwork& network() const { return *network_; }
  int64_t classes() const { return classes_; }
  // The network with the values of `parameters`, and with the added layer as nodes: its output is then "logits". What
  // it refers to must outlive it: this and the buffer.
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

// An imported network that tells the classes of images: it is trained, evaluated and exported like the other models of
// task = "images".

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

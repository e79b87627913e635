// What tells the classes of token sequences: a BERT with a head (models/modules/text_encoder.h), or an imported network
// (onnx/text_network.h).
#pragma once
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {

struct TextClassifier : Module {
  // tokens, types i32 [B, T], lengths i32 [B] -> [B, classes]. Without `types` every token is of type 0.
  virtual Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) = 0;
  virtual int64_t max_length() const = 0;  // tokens of a sequence
};

// Inputs of the graph: "tokens" i32 [batch, length], "lengths" and "labels" i32 [batch], with `types` also "types" i32
// [batch, length]; a row with a negative label is left out. Evaluation has the outputs "predictions" i32 [batch] and
// "logits" [batch, classes].
Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);

}  // namespace linnet

// Classifies token sequences or their tokens: an encoder with a head (models/modules/text_encoder.h) or an imported
// network (onnx/text_network.h); and its losses.
#pragma once
#include "models/modules/losses.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {
struct TextClassifier : Module {
  // tokens, types i32 [B, T], lengths i32 [B] -> of texts [B, outputs], of tokens [B, T, outputs]. No `types`: all 0.
  virtual Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) = 0;
  virtual int64_t max_length() const = 0;  // tokens of a sequence

  ClassWeights class_weights;  // of all losses but that of numbers
};

// Inputs of all losses: "tokens" i32 [batch, length], "lengths" i32 [batch], "labels"; with `types` also "types" i32
// [batch, length]. Evaluation has the output "logits".
using TextLoss = Loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types);

// Cross-entropy. "labels" i32 [batch], or of every token [batch, length]; negative: left out. Evaluation also outputs
// "predictions" i32 of the same shape.
Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
Loss several_labels_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// The begin and end of answers: cross-entropy over a text's tokens for each, from two logits a token. "labels" i32
// [batch, 2]. Unlike in transformers, padding does not count.
Loss span_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
Loss regression_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
}  // namespace linnet

// What classifies token sequences, or each of their tokens: an encoder with a head (models/modules/text_encoder.h), or
// an imported network (onnx/text_network.h); and the losses by which it learns.
#pragma once
#include "models/modules/losses.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {

struct TextClassifier : Module {
  // tokens, types i32 [B, T], lengths i32 [B] -> of whole texts [B, outputs], of tokens [B, T, outputs]. Without
  // `types` every token is of type 0.
  virtual Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) = 0;
  virtual int64_t max_length() const = 0;  // tokens of a sequence

  ClassWeights class_weights;  // of all losses but that of numbers
};

// Inputs of the graphs of all losses: "tokens" i32 [batch, length], "lengths" i32 [batch], "labels"; with `types` also
// "types" i32 [batch, length]. Evaluation has the output "logits".
using TextLoss = Loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types);

// Cross-entropy of one class each. "labels" i32 [batch]; a row with a negative label is left out. Evaluation also has
// the output "predictions" i32 [batch].
Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// The same of every token: "labels" i32 [batch, length]; "predictions" i32 [batch, length].
Loss token_classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// Several labels at once: label_loss().
Loss several_labels_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// Where answers begin and end: cross-entropy over the tokens of a text for either, from two logits a token. "labels"
// i32 [batch, 2]. Transformers counts padding among the tokens; here the loss does not depend on it.
Loss span_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// Numbers: number_loss().
Loss regression_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);

}  // namespace linnet

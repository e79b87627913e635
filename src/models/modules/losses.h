// Losses of classes (with optional weights), of numbers and of another model's probabilities; classifiers of texts.
#pragma once
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {
class ClassWeights {
 public:
  // Called before the model's layout is made. One weight per class; none: all count alike.
  void set(Module& model, std::span<const float> weights);
  // [classes], or undefined if all count alike; in evaluation too, so that losses are comparable.
  Tensor tensor(const Trace& trace) const { return table_ && trace.options().training ? table_->tensor() : Tensor{}; }

 private:
  std::optional<Constant> table_;
};

// Summed cross-entropy; target [rows, classes] has probabilities.
Tensor soft_cross_entropy_sum(Tensor logits, Tensor target);
// The same with labels i32 [...]; a negative one is left out. `weights`: [classes], or undefined.
Tensor weighted_cross_entropy_sum(Tensor logits, Tensor labels, double label_smoothing, Tensor weights);

// For both: logits [batch, outputs]; inputs "labels" f32 [batch, outputs] and "weights" f32 [batch], 0 for rows left
// out, otherwise 1. label_loss: several labels, each 0 or 1; the mean over a row's labels of binary cross-entropies
// with logits, times the class weight [outputs], if defined, for labels of 1.
Loss label_loss(Trace& trace, Tensor logits, Tensor class_weights);
Loss number_loss(Trace& trace, Tensor logits);  // mean over the outputs of squared errors

// Distillation (Hinton et al. 2015): learning the probabilities of another model.
struct Distillation {
  double temperature = 1;
  double share = 0.5;  // of the loss
};

// (1 - share) of the data's loss, and share temperature^2 of the Kullback-Leibler divergence of softmax(student /
// temperature) from softmax(teacher / temperature). Logits [..., V], targets i32 [...]; negative: left out.
Loss distilled_loss(const Loss& data, Tensor student, Tensor teacher, Tensor targets, const Distillation& options);

// Appends another graph's nodes under a module path; returns its `result` here. Inputs join those named name_of().
Tensor append_graph(Graph& graph, const Graph& other, ValueId result, const std::string& path,
    const std::function<std::string(const std::string&)>& name_of);

// Classifies texts or their tokens: an encoder with a head (text_encoder.h) or a network (onnx/text_network.h).
struct TextClassifier : Module {
  // tokens, types i32 [B, T], lengths i32 [B] -> of texts [B, outputs], of tokens [B, T, outputs]. No `types`: all 0.
  virtual Tensor logits(Tensor tokens, Tensor lengths, Tensor types = {}) = 0;
  virtual int64_t max_length() const = 0;  // tokens of a sequence

  ClassWeights class_weights;  // of all losses but that of numbers
};

// Inputs of all losses: "tokens" i32 [batch, length], "lengths" i32 [batch], "labels"; with `types` also "types" i32
// [batch, length]. Evaluation has the output "logits".
using TextLoss = Loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types);

struct TracedLogits {
  Tensor logits, lengths;
};
// The model's logits of these inputs, the output of evaluation.
TracedLogits traced_logits(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);

// Cross-entropy. "labels" i32 [batch], or of every token [batch, length]; negative: left out. Evaluation also outputs
// "predictions" i32 of the same shape.
Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
Loss several_labels_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
// The begin and end of answers: cross-entropy over a text's tokens for each, from two logits a token. "labels" i32
// [batch, 2]. Unlike in transformers, padding does not count.
Loss span_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
Loss regression_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types = false);
}  // namespace linnet

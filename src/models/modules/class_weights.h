// Losses that count more for some classes than for others, so that rare ones are learned too.
#pragma once
#include <optional>
#include <span>
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {

class ClassWeights {
 public:
  // Before the model's layout is made. One weight for each class; none: all count alike.
  void set(Module& model, std::span<const float> weights);
  // [classes], or undefined where all count alike: also outside of training, so that evaluations stay comparable.
  Tensor tensor(const Trace& trace) const;

 private:
  std::optional<Constant> table_;
};

// Summed cross-entropy with any share of each class as target, [rows, classes].
Tensor soft_cross_entropy_sum(Tensor logits, Tensor target);
// The same with one class for each row, labels i32 [...]; a negative one is left out. `weights` [classes], or
// undefined.
Tensor weighted_cross_entropy_sum(Tensor logits, Tensor labels, double label_smoothing, Tensor weights);

// Losses of `logits` [batch, outputs]. Inputs of the graph: "labels" f32 [batch, outputs]; "weights" f32 [batch], 0 for
// rows that are left out and 1 for others.
// Several labels at once, each 0 or 1: the mean over the labels of a row of their binary cross-entropies with logits. A
// class weight [outputs], or undefined, multiplies the loss of a label that is there.
Loss label_loss(Trace& trace, Tensor logits, Tensor class_weights);
// Numbers: the mean over the outputs of their squared errors.
Loss number_loss(Trace& trace, Tensor logits);

}  // namespace linnet

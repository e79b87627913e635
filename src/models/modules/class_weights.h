// Losses that count more for some classes than for others, so that rare ones are learned too.
#pragma once
#include <optional>
#include <span>

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

}  // namespace linnet

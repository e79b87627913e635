// Losses that models share: of classes, some of which may count more so that rare ones are learned too, of numbers, and
// of another model's probabilities.
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

// Distillation (Hinton et al. 2015): learning the probabilities of another model.
struct Distillation {
  double temperature = 1;
  double share = 0.5;  // of the loss
};

// (1 - share) of the loss of the data, and share temperature^2 of the Kullback-Leibler divergence of softmax(student /
// temperature) from softmax(teacher / temperature). Logits are [..., V], `targets` i32 [...]; rows with a negative
// target are left out.
Loss distilled_loss(const Loss& data, Tensor student, Tensor teacher, Tensor targets, const Distillation& options);

// Appends the nodes of another graph under a module path, and returns what became of its value `result`. Inputs are
// joined by name; `name_of` gives their names here.
Tensor append_graph(Graph& graph, const Graph& other, ValueId result, const std::string& path,
                    const std::function<std::string(const std::string&)>& name_of);

}  // namespace linnet

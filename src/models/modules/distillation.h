// Distillation (Hinton et al. 2015): learning the probabilities of another model.
#pragma once
#include "models/nn/loss.h"

namespace linnet {

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

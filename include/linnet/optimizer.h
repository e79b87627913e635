// How parameters are updated from their gradients, and how groups of them differ.
//
//   LearnerOptions options{.optimizer = AdamW{.weight_decay = 0.01}, .groups = {{.patterns = {"bert.*"}, .frozen =
//   true}}};
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace linnet {
// Stochastic gradient descent: m = momentum m + g, w = w - rate m, as torch.optim.SGD has it.
struct Sgd {
  // 0: none.
  double momentum = 0;
  // Added to the gradient, times the weight; only of weights with two axes or more, not of biases and norms.
  double weight_decay = 0;
};

// Adam (Kingma & Ba 2015), as torch.optim.Adam has it.
struct Adam {
  // Decay of the first moment, in [0, 1).
  double beta1 = 0.9;
  // Decay of the second moment, in [0, 1).
  double beta2 = 0.999;
  // Added to the root of the second moment.
  double epsilon = 1e-8;
  // Added to the gradient, times the weight; only of weights with two axes or more, not of biases and norms.
  double weight_decay = 0;
};

// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW has it.
struct AdamW {
  // Decay of the first moment, in [0, 1).
  double beta1 = 0.9;
  // Decay of the second moment, in [0, 1).
  double beta2 = 0.999;
  // Added to the root of the second moment.
  double epsilon = 1e-8;
  // A weight with two axes or more shrinks by rate * weight_decay in each step; biases and norms do not.
  double weight_decay = 0.01;
};

// The sign of an average of gradients, with decoupled weight decay (Chen et al. 2023); half of Adam's memory. Rates are
// three to ten times smaller than Adam's.
struct Lion {
  // Share of the average in the direction, in [0, 1).
  double beta1 = 0.9;
  // Decay of the average, in [0, 1).
  double beta2 = 0.99;
  // A weight with two axes or more shrinks by rate * weight_decay in each step; biases and norms do not.
  double weight_decay = 0;
};

// AdamW whose moments are kept in 8 bits, 2.03 bytes for each parameter instead of 8 (Dettmers et al. 2022).
struct AdamW8bit {
  // Decay of the first moment, in [0, 1).
  double beta1 = 0.9;
  // Decay of the second moment, in [0, 1).
  double beta2 = 0.999;
  // Added to the root of the second moment.
  double epsilon = 1e-8;
  // A weight with two axes or more shrinks by rate * weight_decay in each step; biases and norms do not.
  double weight_decay = 0.01;
};

// Moves each matrix of a layer along the nearest orthogonal matrix to its momentum (Jordan et al. 2024), by as much as
// AdamW would in a large model. Rates are AdamW's there, and three to four times as large in small models. Embeddings,
// heads (parameters with "head", "lm_head" or "classifier" in their name) and vectors are updated by AdamW.
struct Muon {
  // Decay of the momentum, in [0, 1).
  double momentum = 0.95;
  // Of AdamW: decay of the first moment, in [0, 1).
  double beta1 = 0.9;
  // Of AdamW: decay of the second moment, in [0, 1).
  double beta2 = 0.999;
  // Of AdamW: added to the root of the second moment.
  double epsilon = 1e-8;
  // A weight with two axes or more shrinks by rate * weight_decay in each step; biases and norms do not.
  double weight_decay = 0.01;
};

// Adam's second moment as a product of a column and a row for each matrix, and no first moment (Shazeer & Stern 2018):
// the least memory of all. The step of a tensor is at most `rate` times the root of its number of elements long.
struct Adafactor {
  // The second moment's decay in step t is 1 - t^-decay_power.
  double decay_power = 0.8;
  // A weight with two axes or more shrinks by rate * weight_decay in each step; biases and norms do not.
  double weight_decay = 0;
};

// How the matrices of a group lie in memory. Products with them are computed in the precision of all products.
enum class FrozenStorage {
  // 4 bytes a number.
  fp32,
  // 2 bytes a number, rounded to the nearest.
  bf16,
  // Integers of 8 bits, each 32 neighbors of a row with a scale: about 1.1 bytes a number.
  int8,
  // Integers of 4 bits, the same: about 0.6 bytes. Tables that are looked up by ids have 8.
  int4,
};

// One of them.
using Optimizer = std::variant<Sgd, Adam, AdamW, Lion, AdamW8bit, Muon, Adafactor>;

// Parameters that are trained alike, chosen by their names: those that one of the patterns matches and no earlier group
// has. Parameters that no group has are trained as the options of the learner say.
struct TrainingGroup {
  // Of full names ("encoder.layers.0.linear1.weight"); '*' stands for any characters. A pattern that no parameter has
  // is an error.
  std::vector<std::string> patterns = {};
  // Not trained: no gradient, no moments, no moving average, and the backward pass does not go through what only frozen
  // parameters need.
  bool frozen = false;
  // Of the group's matrices. What is trained may be stored in bf16: updates compute in fp32 and are rounded
  // stochastically, with random numbers that follow from seed and step. int8 and int4 are errors there. On the CPU
  // alone.
  FrozenStorage storage = FrozenStorage::fp32;
  // Of the learning rate.
  double rate_factor = 1;
  // Empty: as the options say.
  std::optional<double> weight_decay = {};
  // Empty: as the options say.
  std::optional<Optimizer> optimizer = {};
};
}  // namespace linnet

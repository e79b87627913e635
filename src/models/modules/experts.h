// A mixture of experts (Shazeer et al. 2017): many gated feed-forwards, of which a router chooses some for each token.
// Only those are computed.
#pragma once
#include <optional>
#include "models/nn/layers.h"

namespace linnet {

enum class Activation { kRelu, kGelu, kGeluTanh, kSilu, kTanh };

Tensor activate(Tensor x, Activation activation);

struct ExpertsConfig {
  int64_t width, hidden;
  int64_t count, chosen;    // experts, and how many a token has
  bool normalized = false;  // the chosen experts' weights are scaled to a sum of 1
  Activation activation = Activation::kSilu;
  Initializer weights;
};

struct Experts : Module {
  Experts(Module* parent, std::string name, const ExpertsConfig& config);
  // The sum of the chosen experts' results, weighted by the router's probabilities: [B, T, D].
  Tensor operator()(Tensor x);

  // Of the last call in a graph that trains, over all its tokens [1, count]: the share of the tokens that chose each
  // expert, and the mean of the router's probabilities. Their product keeps experts equally busy (see TextDecoder).
  struct Load {
    Tensor chosen, probability;
  };
  Load load;

  const ExpertsConfig config;
  Parameter router;   // [count, D]
  Parameter linear1;  // [count * 2 hidden, D]: of each expert, what is activated, then what multiplies it
  Parameter linear2;  // [count * D, hidden]
};

}  // namespace linnet

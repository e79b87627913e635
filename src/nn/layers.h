// Layers every model shares.
#pragma once
#include <optional>

#include "nn/low_rank.h"
#include "nn/module.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {

// y = x weight^T + bias; x [..., in] -> [..., out]. With adapters (nn/low_rank.h), their products are added.
struct Linear : Module {
  Linear(Module* parent, std::string name, int64_t in, int64_t out, const Initializer& initializer = glorot_uniform(),
         bool has_bias = true);
  Tensor operator()(At x);

  Parameter weight;               // [out, in]
  std::optional<Parameter> bias;  // [out]
  LowRank low_rank;
};

enum class NormKind {
  kLayer,  // layer normalization with weight and bias
  kBare,   // without: weight is 1, bias 0
  kRms,    // root-mean-square normalization, with a weight
};

struct LayerNorm : Module {
  LayerNorm(Module* parent, std::string name, int64_t width, double epsilon = 1e-5, NormKind kind = NormKind::kLayer);
  Tensor operator()(At x);

  NormKind kind;
  std::optional<Parameter> weight, bias;  // [width]
  double epsilon;
};

// Batch normalization (Ioffe & Szegedy 2015) over all axes but the last, which holds the channels: x [..., channels].
// Training normalizes with the mean and variance of the batch and moves running_mean and running_var by `momentum`
// toward them (the variance without bias, as PyTorch does); otherwise those are used. Needs more than one element a
// channel to train on.
struct BatchNorm : Module {
  BatchNorm(Module* parent, std::string name, int64_t channels, double epsilon = 1e-5, double momentum = 0.1);
  Tensor operator()(At x);

  Parameter weight, bias;                 // [channels]
  SavedBuffer running_mean, running_var;  // [channels]
  double epsilon, momentum;
};

// ids i32 [...] -> [..., width]. By default as in the Transformer of 2017: scaled by sqrt(width), with an initial
// deviation of 1 / sqrt(width).
struct Embedding : Module {
  Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width);
  // Unscaled.
  Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width, const Initializer& initializer);
  Tensor operator()(At ids);

  Parameter weight;  // [vocab_size, width]
  double scale;
  int64_t padding = -1;  // an id whose lookups do not train the table; -1: none
};

// Zeroes elements with the given probability while training, and scales the others up. The mask depends on the module's
// path, never on the order of tracing.
struct Dropout : Module {
  Dropout(Module* parent, std::string name, float probability);
  Tensor operator()(At x);

  float probability;
};

}  // namespace linnet

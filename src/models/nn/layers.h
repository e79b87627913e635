// Layers every model shares.
#pragma once
#include <optional>
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/low_rank.h"
#include "models/nn/module.h"

namespace linnet {

// y = x weight^T + bias; x [..., in] -> [..., out]. With adapters (see LowRank), their products are added.
struct Linear : Module {
  // From `in` to `out` features. Throws Error(kUser) for sizes below 1.
  Linear(Module* parent, std::string name, int64_t in, int64_t out, const Initializer& initializer = xavier_uniform(),
         bool has_bias = true);
  // Applies it: [..., in] -> [..., out].
  Tensor operator()(At x);
  // From now on it computes as static int8 will: x and the weight are rounded to 8 bits, x
  // by a step that is trained and begins as `step`.
  void train_quantized(float step);

  // [out, in]
  Parameter weight;
  // [out]; none without has_bias.
  std::optional<Parameter> bias;
  // [1]: the step of x; usually none.
  std::optional<Parameter> input_step;
  // Adapters that are trained beside the weight; usually none.
  LowRank low_rank;
};

// What a LayerNorm does.
enum class NormKind {
  kLayer,       // layer normalization with weight and bias
  kBare,        // without: weight is 1, bias 0
  kRms,         // root-mean-square normalization, with a weight
  kRmsPlusOne,  // the same, multiplied by 1 + weight, whose initial value is 0
  kNoBias,      // layer normalization with a weight alone
};

// Normalization over the last axis: y = (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba, Kiros & Hinton
// 2016), or without the mean (RmsNorm).
struct LayerNorm : Module {
  // `width` is the size of the last axis.
  LayerNorm(Module* parent, std::string name, int64_t width, double epsilon = 1e-5, NormKind kind = NormKind::kLayer);
  // Applies it: [..., width] -> [..., width].
  Tensor operator()(At x);

  // As constructed.
  NormKind kind;
  // [width]; none of kBare.
  std::optional<Parameter> weight;
  // [width]; of kLayer alone.
  std::optional<Parameter> bias;
  // Added to the variance.
  double epsilon;
};

// Batch normalization (Ioffe & Szegedy 2015) over all axes but the last, which holds the channels: x [..., channels].
// Training normalizes with the mean and variance of the batch and moves running_mean and running_var by `momentum`
// toward them (the variance without bias, as PyTorch does); otherwise those are used. Needs more than one element a
// channel to train on.
struct BatchNorm : Module {
  // `channels` is the size of the last axis.
  BatchNorm(Module* parent, std::string name, int64_t channels, double epsilon = 1e-5, double momentum = 0.1);
  // Applies it: [..., channels] -> [..., channels]. Where its weight and bias are frozen, training uses the running
  // statistics too, and they stay as they are.
  Tensor operator()(At x);

  // [channels]
  Parameter weight;
  // [channels]
  Parameter bias;
  // [channels]: the mean that evaluation uses.
  SavedBuffer running_mean;
  // [channels]: the variance that evaluation uses.
  SavedBuffer running_var;
  // Added to the variance.
  double epsilon;
  // The share of each batch in the running statistics.
  double momentum;
};

// ids i32 [...] -> [..., width]: rows of a table.
struct Embedding : Module {
  // A table of vocab_size rows, by default drawn from N(0, 1).
  Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width,
            const Initializer& initializer = normal_init(1));
  // Looks ids up: [...] -> [..., width]. An id out of [0, vocab_size) is an Error(kUser) when the graph runs.
  Tensor operator()(At ids);

  // [vocab_size, width]
  Parameter weight;
  // What rows are multiplied by: sqrt(width) in the Transformer of 2017.
  double scale = 1;
  // An id whose lookups do not train the table; -1: none.
  int64_t padding = -1;
};

// Zeroes elements with the given probability while training, and scales the others up. The mask depends on the module's
// path, never on the order of tracing.
struct Dropout : Module {
  // `probability` is in [0, 1); Error(kUser) otherwise.
  Dropout(Module* parent, std::string name, float probability);
  // Applies it; x itself when the graph does not train.
  Tensor operator()(At x);

  // As constructed.
  float probability;
};

}  // namespace linnet

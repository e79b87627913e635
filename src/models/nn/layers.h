// Layers every model shares.
#pragma once
#include <optional>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "models/nn/low_rank.h"
#include "models/nn/module.h"

namespace linnet {
// y = x weight^T + bias: [..., in] -> [..., out], plus the products of adapters (LowRank).
struct Linear : Module {
  // From `in` to `out` features. Throws Error(kUser) for sizes below 1.
  Linear(Module* parent, std::string name, int64_t in, int64_t out, const Initializer& initializer = xavier_uniform(),
      bool has_bias = true);
  Tensor operator()(At x);  // [..., in] -> [..., out]
  // From now on computes as static int8: rounds x and the weight to 8 bits, x by a trained step that begins as `step`.
  void train_quantized(float step);

  Parameter weight;                     // [out, in]
  std::optional<Parameter> bias;        // [out]; none without has_bias
  std::optional<Parameter> input_step;  // [1]: the step of x; usually none
  LowRank low_rank;                     // adapters trained beside the weight; usually none
};

// The form of a LayerNorm.
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
  Tensor operator()(At x);  // [..., width] -> [..., width]

  NormKind kind;                    // as constructed
  std::optional<Parameter> weight;  // [width]; none of kBare
  std::optional<Parameter> bias;    // [width]; of kLayer alone
  double epsilon;                   // added to the variance
};

// Batch normalization (Ioffe & Szegedy 2015) over all axes but the last, the channels. Training normalizes with the
// mean and variance of the batch and moves running_mean and running_var (unbiased, as in PyTorch) by `momentum` toward
// them; evaluation uses those. Training needs more than one element per channel.
struct BatchNorm : Module {
  // `channels` is the size of the last axis.
  BatchNorm(Module* parent, std::string name, int64_t channels, double epsilon = 1e-5, double momentum = 0.1);
  // [..., channels] -> [..., channels]. With frozen weight and bias, training uses the running statistics unchanged.
  Tensor operator()(At x);

  Parameter weight;          // [channels]
  Parameter bias;            // [channels]
  SavedBuffer running_mean;  // [channels], used by evaluation
  SavedBuffer running_var;   // [channels], used by evaluation
  double epsilon;            // added to the variance
  double momentum;           // the share of each batch in the running statistics
};

// Looks up rows of a table: ids i32 [...] -> [..., width].
struct Embedding : Module {
  // A table of vocab_size rows, by default drawn from N(0, 1).
  Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width,
      const Initializer& initializer = normal_init(1));
  // An id outside of [0, vocab_size) is an Error(kUser) when the graph runs.
  Tensor operator()(At ids);

  Parameter weight;      // [vocab_size, width]
  double scale = 1;      // factor of all rows: sqrt(width) in the Transformer of 2017
  int64_t padding = -1;  // the id whose lookups do not train the table; -1: none
};

// In training, zeroes elements with this probability and scales the others up. The mask depends on the module's path.
struct Dropout : Module {
  // `probability` is in [0, 1); Error(kUser) otherwise.
  Dropout(Module* parent, std::string name, float probability);
  Tensor operator()(At x);  // x itself if the graph does not train

  float probability;  // as constructed
};
}  // namespace linnet

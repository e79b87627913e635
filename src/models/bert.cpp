#include "models/bert.h"

#include "base/error.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/movement/movement.h"

namespace linnet {
namespace {

constexpr double kDeviation = 0.02;  // of initial weights
constexpr double kEpsilon = 1e-12;   // of the norms

LayerConfig layer_config(const BertConfig& config) {
  return {.width = config.width,
          .heads = config.heads,
          .hidden = config.hidden,
          .dropout = config.dropout,
          .hidden_dropout = 0,
          .norm_first = false,
          .activation = Activation::kGelu,
          .epsilon = kEpsilon,
          .weights = normal_init(kDeviation),
          .residual = normal_init(kDeviation)};
}

}  // namespace

Bert::Bert(Module* parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      words{this, "words", config.vocab_size, config.width, normal_init(kDeviation)},
      positions{this, "positions", config.max_seq_len, config.width, normal_init(kDeviation)},
      types{this, "types", config.token_types, config.width, normal_init(kDeviation)},
      embedding_norm{this, "embedding_norm", config.width, kEpsilon},
      dropout{this, "dropout", static_cast<float>(config.dropout)},
      layers{this, "layers", config.layers, layer_config(config)} {}

Tensor Bert::operator()(Tensor ids, Tensor lengths) {
  const int64_t length = ids.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
  const Tensor type = reshape(slice(types.weight.tensor(), 0, 0, 1), {config.width});
  const Tensor rows = slice(positions.weight.tensor(), 0, 0, length) + type;
  Tensor x = dropout(embedding_norm(words(ids) + rows));
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, {.lengths = lengths});
  return x;
}

MaskedHead::MaskedHead(Module* parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      dense{this, "dense", config.width, config.width, normal_init(kDeviation)},
      norm{this, "norm", config.width, kEpsilon},
      bias{this, "bias", {config.vocab_size}, constant_init(0)} {}

Tensor MaskedHead::operator()(Tensor x) { return norm(gelu(dense(x))); }

Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked) {
  const Tensor tokens = trace.input("tokens", {DType::kI32, {batch, length}});
  const Tensor lengths = trace.input("lengths", {DType::kI32, {batch}});
  const Tensor places = trace.input("positions", {DType::kI32, {masked}});
  const Tensor targets = trace.input("targets", {DType::kI32, {masked}});
  const Tensor hidden = model.bert(tokens, lengths);
  const Tensor rows = embedding(reshape(hidden, {batch * length, model.bert.config.width}), places);
  return {linear_cross_entropy_sum(model.head(rows), model.bert.words.weight, model.head.bias, targets),
          count_targets(targets, hidden.type().dtype)};
}

}  // namespace linnet

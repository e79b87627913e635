#include "models/modules/text_encoder.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

constexpr double kEncoderDeviation = 0.02;  // of initial weights

LayerConfig layer_config(const EncoderConfig& config) {
  return {.width = config.width,
          .heads = config.heads,
          .hidden = config.hidden,
          .dropout = config.dropout,
          .hidden_dropout = 0,
          .norm_first = false,
          .activation = config.activation,
          .epsilon = config.epsilon,
          .weights = normal_init(kEncoderDeviation),
          .residual = normal_init(kEncoderDeviation),
          .attention_dropout = config.attention_dropout};
}

}  // namespace

TextEncoder::TextEncoder(Module* parent, std::string name, const EncoderConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      words{this, "words", config.vocab_size, config.width, normal_init(kEncoderDeviation)},
      positions{this, "positions", config.first_position + config.max_seq_len, config.width,
                normal_init(kEncoderDeviation)},
      types(config.token_types > 0 ? std::make_unique<Embedding>(this, "types", config.token_types, config.width,
                                                                 normal_init(kEncoderDeviation))
                                   : nullptr),
      embedding_norm{this, "embedding_norm", config.width, config.epsilon},
      dropout{this, "dropout", static_cast<float>(config.dropout)},
      layers{this, "layers", config.layers, layer_config(config)} {
  words.padding = config.pad_token;
}

Tensor TextEncoder::operator()(Tensor ids, Tensor lengths, Tensor type_ids) {
  const int64_t length = ids.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
  const bool typed = types && type_ids.defined();
  Tensor rows = slice(positions.weight.tensor(), 0, config.first_position, length);
  if (types && !typed) rows = rows + reshape(slice(types->weight.tensor(), 0, 0, 1), {config.width});
  Tensor x = words(ids) + rows;
  if (typed) x = x + (*types)(type_ids);
  x = dropout(embedding_norm(x));
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, {.lengths = lengths});
  return x;
}

MaskedHead::MaskedHead(Module* parent, std::string name, const EncoderConfig& config)
    : Module(parent, std::move(name)),
      activation(config.head_activation),
      dense{this, "dense", config.width, config.width, normal_init(kEncoderDeviation)},
      norm{this, "norm", config.width, config.epsilon},
      bias{this, "bias", {config.vocab_size}, constant_init(0)} {}

Tensor MaskedHead::operator()(Tensor x) { return norm(activate(dense(x), activation)); }

Tensor MaskedLanguageModel::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return logits_of(head(encoder(tokens, lengths, types)));
}

Tensor MaskedLanguageModel::logits_of(Tensor states) {
  return matmul(states, encoder.words.weight, false, true) + head.bias.tensor();
}

namespace {

struct EncoderInputs {
  Tensor tokens, lengths, types;
};

EncoderInputs declare_inputs(Trace& trace, int64_t batch, int64_t length, bool types) {
  const TensorType ids{DType::kI32, {batch, length}};
  return {trace.input("tokens", ids), trace.input("lengths", {DType::kI32, {batch}}),
          types ? trace.input("types", ids) : Tensor{}};
}

}  // namespace

namespace {

// What evaluation wants: predictions beside the loss, from logits of a few rows at a time.
Tensor evaluate_masked(MaskedLanguageModel& model, Trace& trace, Tensor states, Tensor targets) {
  constexpr int64_t kRows = 128;
  const int64_t count = states.dim(0);
  std::vector<Tensor> predictions;
  Tensor sum;
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t rows = std::min(kRows, count - first);
    const Tensor logits = model.logits_of(slice(states, 0, first, rows));
    const Tensor part = cross_entropy_sum(logits, slice(targets, 0, first, rows));
    sum = sum.defined() ? sum + part : part;
    predictions.push_back(argmax_last(logits));
  }
  trace.graph().output("predictions", predictions.size() > 1
                                          ? concat(predictions[0], std::span(predictions).subspan(1), 0)
                                          : predictions[0]);
  return sum;
}

}  // namespace

Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked,
                          bool types, double label_smoothing) {
  const EncoderInputs inputs = declare_inputs(trace, batch, length, types);
  const Tensor locations = trace.input("positions", {DType::kI32, {masked}});
  const Tensor targets = trace.input("targets", {DType::kI32, {masked}});
  const Tensor hidden = model.encoder(inputs.tokens, inputs.lengths, inputs.types);
  const Tensor rows = embedding(reshape(hidden, {batch * length, model.encoder.config.width}), locations);
  const Tensor states = model.head(rows), count = count_targets(targets, hidden.type().dtype);
  if (!trace.options().training) return {evaluate_masked(model, trace, states, targets), count};
  return {linear_cross_entropy_sum(states, model.encoder.words.weight, model.head.bias, targets, label_smoothing),
          count};
}

Pooler::Pooler(Module* parent, std::string name, const EncoderConfig& config, double dropout)
    : Module(parent, std::move(name)),
      dropout{this, "dropout", static_cast<float>(dropout)},
      dense{this, "dense", config.width, config.width, normal_init(kEncoderDeviation)} {}

Tensor Pooler::operator()(Tensor states) {
  const Tensor first = reshape(slice(states, 1, 0, 1), {states.dim(0), states.dim(2)});
  return tanh(dense(dropout(first)));
}

SequenceClassifier::SequenceClassifier(const EncoderConfig& config, int64_t classes, std::optional<double> probability)
    : encoder{this, "bert", config},
      pooler{this, "pooler", config, config.pooler_dropout ? probability.value_or(config.dropout) : 0},
      dropout{this, "dropout", static_cast<float>(probability.value_or(config.dropout))},
      classifier{this, "classifier", config.width, classes, normal_init(kEncoderDeviation)} {}

Tensor SequenceClassifier::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return classifier(dropout(pooler(encoder(tokens, lengths, types))));
}

TokenClassifier::TokenClassifier(const EncoderConfig& config, std::string name, int64_t outputs, double probability)
    : encoder{this, "bert", config},
      dropout{this, "dropout", static_cast<float>(probability)},
      classifier{this, std::move(name), config.width, outputs, normal_init(kEncoderDeviation)} {}

Tensor TokenClassifier::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return classifier(dropout(encoder(tokens, lengths, types)));
}

namespace {

// The model's logits of the inputs of a batch, an output of evaluation.
Tensor traced_logits(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const EncoderInputs inputs = declare_inputs(trace, batch, length, types);
  const Tensor logits = model.logits(inputs.tokens, inputs.lengths, inputs.types);
  if (!trace.options().training) trace.graph().output("logits", logits);
  return logits;
}

Loss class_loss(Trace& trace, Tensor logits, Tensor labels) {
  if (!trace.options().training) trace.graph().output("predictions", argmax_last(logits));
  return {cross_entropy_sum(logits, labels), count_targets(labels, logits.type().dtype)};
}

// The mean over the outputs of `errors` [batch, outputs], summed over the rows that count.
Loss weighted_loss(Trace& trace, Tensor errors) {
  const int64_t batch = errors.dim(0), outputs = errors.dim(1);
  const Tensor weights = trace.input("weights", {errors.type().dtype, {batch}});
  const Tensor of_rows = reshape(sum_to(errors, {batch, 1}), {batch}) * (1.0 / static_cast<double>(outputs));
  return {sum_to(of_rows * weights, {}), sum_to(weights, {})};
}

}  // namespace

Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types);
  return class_loss(trace, logits, trace.input("labels", {DType::kI32, {batch}}));
}

Loss token_classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types);
  return class_loss(trace, logits, trace.input("labels", {DType::kI32, {batch, length}}));
}

Loss several_labels_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types);
  const Tensor labels = trace.input("labels", logits.type());
  return weighted_loss(trace, softplus(logits) - logits * labels);
}

Loss regression_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types);
  return weighted_loss(trace, square(logits - trace.input("labels", logits.type())));
}

Tensor SentenceEncoder::operator()(Tensor tokens, Tensor lengths, bool normalized) {
  constexpr double kTiny = 1e-24;  // of the squared length: a zero vector stays one
  const Tensor states = encoder(tokens, lengths);
  const int64_t batch = states.dim(0), width = states.dim(2);
  // A query of zeros attends to all tokens of its sentence alike.
  const Tensor query = fill(*states.graph, {states.type().dtype, {batch, 1, width}}, 0);
  const Tensor mean =
      reshape(attention(query, states, states, {.heads = encoder.config.heads, .lengths = lengths}), {batch, width});
  return normalized ? mean * rsqrt(sum_to(square(mean), {batch, 1}) + kTiny) : mean;
}

}  // namespace linnet

#include "models/modules/text_encoder.h"
#include <numeric>
#include "base/fail.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
constexpr double kEncoderDeviation = 0.02;  // of initial weights

int64_t embedding_width(const EncoderConfig& config) {
  return config.embedding_width > 0 ? config.embedding_width : config.width;
}

LayerConfig layer_config(const EncoderConfig& config, size_t i) {
  LayerConfig layer = common_layer_config(config);
  layer.hidden_dropout = config.hidden_dropout;
  layer.attention_norm = i > 0 || config.first_attention_norm;
  layer.weights = layer.residual = normal_init(kEncoderDeviation);
  layer.gate_second = config.gate_second;
  if (!config.layer_kinds.empty()) layer.rotary = config.layer_kinds.at(i).rotary;
  return layer;
}

std::unique_ptr<Embedding> optional_table(Module* parent, const char* name, int64_t rows, const EncoderConfig& config) {
  if (rows == 0) return nullptr;
  return std::make_unique<Embedding>(parent, name, rows, embedding_width(config), normal_init(kEncoderDeviation));
}

// The entries of distances 1 - length ... length - 1 on the last axis of a constant for the longest text. So the
// constant does not depend on the length, which an ONNX file leaves open.
Tensor of_distances(Tensor constant, int64_t longest, int64_t length) {
  return slice(constant, -1, longest - length, 2 * length - 1);
}

// [heads, 2 length - 1]: minus the distance times the head's slope. Slopes are powers of 2^(-8 / n), n the largest
// power of two up to the number of heads; heads beyond n have every other slope of 2 n heads.
Tensor linear_biases(Graph& graph, DType dtype, const EncoderConfig& config, int64_t length) {
  const int64_t heads = config.heads, longest = config.max_seq_len;
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> biases;
  for (int64_t head = 0; head < heads; ++head) {
    const double slope =
        head < power ? std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power))
                     : std::exp2(-4.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(power));
    for (int64_t distance = 1 - longest; distance < longest; ++distance)
      biases.push_back(-slope * static_cast<double>(std::abs(distance)));
  }
  return of_distances(literal(graph, {dtype, {heads, 2 * longest - 1}}, biases), longest, length);
}

// The row of DeBERTa's table for a key `distance` positions before the query, in float as its authors compute it.
int32_t distance_row(const EncoderConfig& config, int64_t distance) {
  const int64_t middle = config.distance_span_buckets / 2, far = std::abs(distance);
  if (middle > 0 && far > middle) {
    const float steps = std::log(static_cast<float>(far) / static_cast<float>(middle)) /
                        std::log(static_cast<float>(config.max_distance - 1) / static_cast<float>(middle)) *
                        static_cast<float>(middle - 1);
    const int64_t bucket = static_cast<int64_t>(std::ceil(steps)) + middle;
    distance = distance < 0 ? -bucket : bucket;
  }
  return static_cast<int32_t>(std::clamp<int64_t>(distance + config.distance_span, 0, 2 * config.distance_span - 1));
}

struct EncoderInputs {
  Tensor tokens, lengths, types;
};

EncoderInputs declare_inputs(Trace& trace, int64_t batch, int64_t length, bool types) {
  const TensorType ids{DType::kI32, {batch, length}};
  return {trace.input("tokens", ids), trace.input("lengths", {DType::kI32, {batch}}),
      types ? trace.input("types", ids) : Tensor{}};
}

// Loss and predictions, from logits of a few rows at a time.
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
  trace.graph().output("predictions", joined(predictions, 0));
  return sum;
}
}  // namespace

TracedLogits traced_logits(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const EncoderInputs inputs = declare_inputs(trace, batch, length, types);
  const Tensor logits = model.logits(inputs.tokens, inputs.lengths, inputs.types);
  if (!trace.options().training) trace.graph().output("logits", logits);
  return {logits, inputs.lengths};
}

Tensor first_state(Tensor states) { return reshape(slice(states, 1, 0, 1), {states.dim(0), states.dim(2)}); }

// A query of zeros attends to all its tokens alike.
Tensor mean_state(Tensor states, Tensor lengths, int64_t heads) {
  const int64_t batch = states.dim(0), width = states.dim(2);
  const Tensor query = fill(*states.graph, {states.type().dtype, {batch, 1, width}}, 0);
  const int64_t dividing = std::gcd(heads, width);  // a T5 may have heads that do not divide its width
  return reshape(attention(query, states, states, {.heads = dividing, .lengths = lengths}), {batch, width});
}

TokenConvolution::TokenConvolution(Module* parent, std::string name, const EncoderConfig& config)
    : Module(parent, std::move(name)), longest(config.max_seq_len),
      activation(config.convolution_activation), weight{this, "weight",
                                                     {config.width, config.width, config.convolution},
                                                     normal_init(kEncoderDeviation)},
      bias{this, "bias", {config.width}, constant_init(0)},
      dropout{this, "dropout", static_cast<float>(config.dropout)}, norm{this, "norm", config.width, config.epsilon,
                                                                        config.norms} {}

Tensor TokenConvolution::operator()(Tensor embeddings, Tensor lengths, Tensor states) {
  ModuleScope scope(*this);
  const int64_t batch = embeddings.dim(0), length = embeddings.dim(1), width = embeddings.dim(2);
  const int64_t taps = weight.spec().shape[2], before = (taps - 1) / 2;
  const Tensor mask = reshape(token_mask(lengths, length, embeddings.type().dtype, longest), {batch, length, 1});
  const Tensor text = embeddings * broadcast_to(mask, embeddings.shape());
  const Tensor wide = padded(text, 1, before, taps - 1 - before);
  const Tensor kernel = permute(weight.tensor(), {2, 0, 1});
  Tensor sum;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const Tensor of_tap = reshape(slice(kernel, 0, tap, 1), {width, width});
    const Tensor part = matmul(slice(wide, 1, tap, length), of_tap, false, true);
    sum = sum.defined() ? sum + part : part;
  }
  return norm(states + activate(dropout(sum + bias.tensor()), activation));
}

TextEncoder::TextEncoder(Module* parent, std::string name, const EncoderConfig& config)
    : Module(parent, std::move(name)),
      config(config), words{this, "words", config.vocab_size, embedding_width(config), normal_init(kEncoderDeviation)},
      positions(optional_table(
          this, "positions", config.learned_positions ? config.first_position + config.max_seq_len : 0, config)),
      types(optional_table(this, "types", config.token_types, config)),
      embedding_norm(config.embedding_norm ? std::make_unique<LayerNorm>(this, "embedding_norm",
                                                 embedding_width(config), config.epsilon, config.norms)
                                           : nullptr),
      dropout{this, "dropout", static_cast<float>(config.dropout)}, layers{this, "layers"} {
  words.padding = config.pad_token, words.scale = config.embedding_scale;
  const int64_t blocks = config.layer_groups > 0 ? config.layer_groups * config.group_layers : config.layers;
  for (int64_t i = 0; i < blocks; ++i) layers.append(layer_config(config, static_cast<size_t>(i)));
  if (config.embedding_width > 0)
    projection.emplace(this, "projection", config.embedding_width, config.width, normal_init(kEncoderDeviation));
  if (config.distance_buckets > 0)
    distance_bias.emplace(
        this, "distance_bias", Shape{config.distance_buckets, config.heads}, normal_init(kEncoderDeviation));
  if (config.distance_span > 0)
    distances.emplace(this, "distances", 2 * config.distance_span, config.width, normal_init(kEncoderDeviation));
  if (config.distance_norm) distance_norm.emplace(this, "distance_norm", config.width, config.epsilon, config.norms);
  if (config.convolution > 0) convolution.emplace(this, "convolution", config);
  if (config.final_norm) norm.emplace(this, "norm", config.width, config.epsilon, config.norms);
}

Tensor TextEncoder::embed(Tensor ids, Tensor type_ids) {
  const int64_t length = ids.dim(1), width = words.weight.spec().shape[1];
  const bool typed = types && type_ids.defined();
  Tensor rows;  // what all sequences get
  if (positions) rows = slice(positions->weight.tensor(), 0, config.first_position, length);
  if (types && !typed) {
    const Tensor first = reshape(slice(types->weight.tensor(), 0, 0, 1), {width});
    rows = rows.defined() ? rows + first : first;
  }
  Tensor x = words(ids);
  if (rows.defined()) x = x + rows;
  if (typed) x = x + (*types)(type_ids);
  x = dropout(embedding_norm ? (*embedding_norm)(x) : x);
  return projection ? (*projection)(x) : x;
}

Tensor TextEncoder::bias_of(size_t i, Tensor shared, Tensor like) const {
  const int64_t length = like.dim(1), window = config.layer_kinds.empty() ? 0 : config.layer_kinds.at(i).window;
  if (window == 0 || length <= window) return shared;
  // Added to hidden scores: probability 0, also in fp16. Finite, as a query of padding may see no key.
  constexpr double kHidden = -1e4;
  const auto entries = [&](int64_t count, double value) {
    return fill(*like.graph, {like.type().dtype, {1, count}}, value);
  };
  // Cut from the longest text's biases, so that graphs for any length have no size below 0.
  const Tensor far = entries(config.max_seq_len - window, kHidden);
  const Tensor all = concat(far, std::array{entries(2 * window - 1, 0), far}, 1);
  const int64_t distances = 2 * length - 1;
  const Tensor bias = broadcast_to(slice(all, 1, config.max_seq_len - length, distances), {config.heads, distances});
  return shared.defined() ? shared + bias : bias;
}

void TextEncoder::add_distances(AttentionContext& context, Tensor like) {
  const int64_t length = like.dim(1), longest = config.max_seq_len;
  std::vector<int32_t> rows = mapped(2 * longest - 1, [&](int64_t i) { return distance_row(config, i + 1 - longest); });
  const auto embedded = [&] {
    const Tensor ids = literal(*like.graph, {DType::kI32, {std::ssize(rows)}}, rows.data());
    const Tensor x = (*distances)(of_distances(ids, longest, length));
    return distance_norm ? (*distance_norm)(x) : x;
  };
  context.rising = embedded();
  std::ranges::reverse(rows);
  context.falling = embedded();
}

Tensor TextEncoder::operator()(Tensor ids, Tensor lengths, Tensor type_ids) {
  const int64_t length = ids.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of ", length, " tokens is longer than the model's ", config.max_seq_len);
  Tensor x = embed(ids, type_ids), shared;
  if (distance_bias) {
    const DistanceBucketsAttrs attrs{length, length, config.distance_buckets, config.max_distance, true};
    shared = permute(embedding(distance_bias->tensor(), distance_buckets(*x.graph, attrs)), {1, 0});
  }
  if (config.linear_biases) shared = linear_biases(*x.graph, x.type().dtype, config, length);
  AttentionContext context{.lengths = lengths};
  const Tensor embeddings = x;
  if (distances) add_distances(context, x);
  const size_t groups = static_cast<size_t>(config.layer_groups), inner = static_cast<size_t>(config.group_layers);
  for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i) {
    context.distance_bias = bias_of(i, shared, x);
    if (groups == 0) {
      x = layers[i](x, context);
      if (i == 0 && convolution) x = (*convolution)(embeddings, lengths, x);
      continue;
    }
    const size_t group = i * groups / static_cast<size_t>(config.layers);
    for (size_t block = 0; block < inner; ++block) x = layers[group * inner + block](x, context);
  }
  return norm ? (*norm)(x) : x;
}

MaskedHead::MaskedHead(Module* parent, std::string name, const EncoderConfig& config)
    : Module(parent, std::move(name)),
      activation(config.head_activation), dense{this, "dense", config.width, embedding_width(config),
                                              normal_init(kEncoderDeviation), config.head_biases},
      norm{this, "norm", embedding_width(config), config.epsilon, config.norms}, bias{this, "bias", {config.vocab_size},
                                                                                     constant_init(0)} {}

Tensor MaskedHead::operator()(Tensor x) { return norm(activate(dense(x), activation)); }

Tensor MaskedLanguageModel::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return logits_of(head(encoder(tokens, lengths, types)));
}

Tensor MaskedLanguageModel::logits_of(Tensor states) {
  return matmul(states, encoder.words.weight, false, true) + head.bias.tensor();
}

Loss masked_language_loss(MaskedLanguageModel& model, Trace& trace, int64_t batch, int64_t length, int64_t masked,
    bool types, double label_smoothing) {
  const EncoderInputs inputs = declare_inputs(trace, batch, length, types);
  const Tensor locations = trace.input("positions", {DType::kI32, {masked}});
  const Tensor targets = trace.input("targets", {DType::kI32, {masked}});
  const Tensor hidden = model.encoder(inputs.tokens, inputs.lengths, inputs.types);
  const Tensor rows = embedding(reshape(hidden, {batch * length, model.encoder.config.width}), locations);
  const Tensor states = model.head(rows), count = count_targets(targets, hidden.type().dtype);
  if (!trace.options().training) return {evaluate_masked(model, trace, states, targets), count};
  return {
      linear_cross_entropy_sum(states, model.encoder.words.weight, model.head.bias, targets, label_smoothing), count};
}

Pooler::Pooler(Module* parent, std::string name, const EncoderConfig& config, double dropout)
    : Module(parent, std::move(name)), activation(config.pooler_activation),
      mean_heads(config.mean_pooled ? config.heads : 0), dropout{this, "dropout", static_cast<float>(dropout)},
      dense{this, "dense", config.width, config.width, normal_init(kEncoderDeviation), config.head_biases} {
  if (config.pooler_norm) norm.emplace(this, "norm", config.width, config.epsilon, config.norms);
}

Tensor Pooler::operator()(Tensor states, Tensor lengths) {
  const Tensor state = mean_heads > 0 ? mean_state(states, lengths, mean_heads) : first_state(states);
  const Tensor pooled = activate(dense(dropout(state)), activation);
  return norm ? (*norm)(pooled) : pooled;
}

SequenceClassifier::SequenceClassifier(const EncoderConfig& config, int64_t classes, std::optional<double> probability)
    : encoder{this, "bert", config}, pooler{this, "pooler", config,
                                         config.pooler_dropout ? probability.value_or(config.dropout) : 0},
      dropout{this, "dropout", static_cast<float>(probability.value_or(config.dropout))},
      classifier{this, "classifier", config.width, classes, normal_init(kEncoderDeviation)} {}

Tensor SequenceClassifier::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return classifier(dropout(pooler(encoder(tokens, lengths, types), lengths)));
}

TokenClassifier::TokenClassifier(const EncoderConfig& config, std::string name, int64_t outputs, double probability)
    : encoder{this, "bert", config}, dropout{this, "dropout", static_cast<float>(probability)},
      classifier{this, std::move(name), config.width, outputs, normal_init(kEncoderDeviation)} {}

Tensor TokenClassifier::logits(Tensor tokens, Tensor lengths, Tensor types) {
  return classifier(dropout(encoder(tokens, lengths, types)));
}

Loss classification_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types).logits;
  const Shape rows = logits.shape().rank() == 3 ? Shape{batch, length} : Shape{batch};
  const Tensor labels = trace.input("labels", {DType::kI32, rows});
  if (!trace.options().training) trace.graph().output("predictions", argmax_last(logits));
  return {weighted_cross_entropy_sum(logits, labels, 0, model.class_weights.tensor(trace)),
      count_targets(labels, logits.type().dtype)};
}

Loss span_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  constexpr double kHidden = 1e12;
  const auto [logits, lengths] = traced_logits(model, trace, batch, length, types);
  const Tensor labels = trace.input("labels", {DType::kI32, {batch, 2}});
  const DType dtype = logits.type().dtype;
  const Tensor padding = reshape((token_mask(lengths, length, dtype) + -1.0) * kHidden, {batch, 1, length});
  const Tensor seen = permute(logits, {0, 2, 1}) + broadcast_to(padding, {batch, 2, length});
  return {cross_entropy_sum(seen, labels), count_targets(labels, dtype)};
}

Loss several_labels_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  const Tensor logits = traced_logits(model, trace, batch, length, types).logits;
  return label_loss(trace, logits, model.class_weights.tensor(trace));
}

Loss regression_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool types) {
  return number_loss(trace, traced_logits(model, trace, batch, length, types).logits);
}
}  // namespace linnet

// Poolings and losses of SentenceEncoders.
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
constexpr double kTiny = 1e-24;  // added to squared lengths, whose root has a derivative then

Tensor root(Tensor x) { return x * rsqrt(x); }

Tensor rows_of(Tensor x, Shape shape) { return broadcast_to(reshape(x, {1, x.shape().elements()}), shape); }
Tensor columns_of(Tensor x, Shape shape) { return broadcast_to(reshape(x, {x.shape().elements(), 1}), shape); }

Tensor last_state(Tensor states, Tensor lengths) {
  const int64_t batch = states.dim(0), length = states.dim(1);
  const Tensor last = slice(one_hot(lengths, length + 1, states.type().dtype), 1, 1, length);
  return reshape(matmul(reshape(last, {batch, 1, length}), states), {batch, states.dim(2)});
}

// The largest of each feature over a sequence's states.
Tensor largest_state(Tensor states, Tensor lengths) {
  constexpr double kHidden = 1e30;
  const int64_t batch = states.dim(0), length = states.dim(1), width = states.dim(2);
  const Shape all{batch, width, length};
  const Tensor padding = (token_mask(lengths, length, states.type().dtype) + -1.0) * kHidden;
  const Tensor x = permute(states, {0, 2, 1});
  const Tensor seen = x + broadcast_to(reshape(padding, {batch, 1, length}), all);
  return reshape(max_last(seen), {batch, width});
}

Tensor pool(Tensor states, Tensor lengths, Pooling pooling, int64_t heads) {
  if (pooling == Pooling::kFirst) return first_state(states);
  if (pooling == Pooling::kLast) return last_state(states, lengths);
  if (pooling == Pooling::kMax) return largest_state(states, lengths);
  const Tensor mean = mean_state(states, lengths, heads);
  return pooling == Pooling::kMean ? mean : mean * reshape(root(cast(lengths, mean.type().dtype)), {mean.dim(0), 1});
}

// Rows of length 1; a row of zeros stays one.
Tensor unit_rows(Tensor x) { return x * rsqrt(sum_to(square(x), {x.dim(0), 1}) + kTiny); }

// Added to logits: large and negative where `counts` is 0.
Tensor hide(Tensor counts) { return (counts + -1.0) * 1e12; }

Tensor row_products(Tensor a, Tensor b) { return sum_to(a * b, {a.dim(0), 1}); }

// [batch, 1]: cross-entropy of each text's partner among the batch's other texts (van den Oord et al. 2018).
Tensor in_batch_errors(Tensor firsts, Tensor partners, Tensor others, Tensor weights, double scale) {
  const int64_t batch = firsts.dim(0), copies = others.dim(0) / batch;
  const std::vector<Tensor> columns(copies, weights);
  const Tensor hidden = hide(concat(columns, 0));
  const Tensor scores = matmul(firsts, others, false, true) * scale + rows_of(hidden, {batch, others.dim(0)});
  return log_sum_exp_last(scores) - row_products(firsts, partners) * scale;
}

// log(1 + the sum of exp(cosine j - cosine i) over all i, j with label i > label j).
Tensor cosent(Tensor cosines, Tensor labels, Tensor weights) {
  const int64_t batch = weights.dim(0);
  const Shape pairs{batch, batch};
  const Tensor counts = apply_scalar(Scalar::kGreater, rows_of(labels, pairs), columns_of(labels, pairs)) *
                        rows_of(weights, pairs) * columns_of(weights, pairs);
  const Tensor differences = columns_of(cosines, pairs) - rows_of(cosines, pairs) + hide(counts);
  return reshape(log_sum_exp_last(padded(reshape(differences, {1, batch * batch}), 1, 1, 0)), {});
}

Tensor distances(Tensor a, Tensor b) { return root(sum_to(square(a - b), {a.dim(0), 1}) + kTiny); }

Tensor embedding_loss_sum(const EmbeddingLoss& options, Tensor embeddings, Tensor labels, Tensor weights) {
  const int64_t batch = weights.dim(0);
  const Tensor units = unit_rows(embeddings);
  const auto part = [&](Tensor of, int64_t index, int64_t count = 1) {
    return slice(of, 0, index * batch, count * batch);
  };
  const Tensor cosines = row_products(part(units, 0), part(units, 1));
  Tensor errors;
  switch (options.kind) {
    case EmbeddingLoss::Kind::kCosent: return cosent(cosines * options.scale, labels, weights);
    case EmbeddingLoss::Kind::kInBatch:
      errors =
          in_batch_errors(part(units, 0), part(units, 1), part(units, 1, options.parts - 1), weights, options.scale);
      break;
    case EmbeddingLoss::Kind::kTriplet:
      errors = relu(distances(part(embeddings, 0), part(embeddings, 1)) -
                    distances(part(embeddings, 0), part(embeddings, 2)) + options.margin);
      break;
    case EmbeddingLoss::Kind::kCosine: errors = square(cosines - reshape(labels, {batch, 1})); break;
  }
  return sum_to(reshape(errors, {batch}) * weights, {});
}
}  // namespace

Tensor token_mask(Tensor lengths, int64_t length, DType dtype, int64_t longest) {
  const int64_t count = std::max(length, longest);
  const std::vector<double> numbers = mapped<double>(count, [](int64_t i) { return i; });
  Tensor positions = literal(*lengths.graph, {dtype, {count}}, numbers);
  if (longest > 0) positions = slice(positions, 0, 0, length);
  const Shape tokens{lengths.dim(0), length};
  return stop_gradient(
      apply_scalar(Scalar::kGreater, columns_of(cast(lengths, dtype), tokens), rows_of(positions, tokens)));
}

Tensor sentence_embeddings(TextEncoder& encoder, Tensor tokens, Tensor lengths, bool normalized, Pooling pooling) {
  const Tensor pooled = pool(encoder(tokens, lengths), lengths, pooling, encoder.config.heads);
  return normalized ? unit_rows(pooled) : pooled;
}

Tensor SentenceEncoder::logits(Tensor tokens, Tensor lengths, Tensor) {
  Tensor x = sentence_embeddings(encoder, tokens, lengths, normalized && dense.size() == 0, pooling);
  for (size_t i = 0; i < dense.size(); ++i) {
    x = dense[i](x);
    if (dense_activations[i]) x = activate(x, *dense_activations[i]);
  }
  return normalized && dense.size() > 0 ? unit_rows(x) : x;
}

Loss embedding_loss_of(const EmbeddingLoss& options, Trace& trace, Tensor embeddings, int64_t batch) {
  const TensorType numbers{embeddings.type().dtype, {batch}};
  const Tensor weights = trace.input("weights", numbers);
  const Tensor labels = options.has_labels() ? trace.input("labels", numbers) : Tensor{};
  Tensor sum;
  if (options.dimensions.empty()) sum = embedding_loss_sum(options, embeddings, labels, weights);
  for (const int64_t dimensions : options.dimensions) {
    const Tensor part = embedding_loss_sum(options, unit_rows(slice(embeddings, 1, 0, dimensions)), labels, weights);
    sum = sum.defined() ? sum + part : part;
  }
  const bool is_one = options.kind == EmbeddingLoss::Kind::kCosent;  // loss of the batch, not of each example
  return {sum, is_one ? fill(trace.graph(), {numbers.dtype, {}}, 1) : sum_to(weights, {})};
}

Loss embedding_loss(TextClassifier& model, Trace& trace, int64_t batch, int64_t length, bool) {
  auto& encoder = dynamic_cast<SentenceEncoder&>(model);
  const EmbeddingLoss& options = trace.options().training ? encoder.training_loss : encoder.evaluation_loss;
  if (options.parts == 1) return embedding_alone(model, trace, batch, length);
  const Tensor embeddings = traced_logits(model, trace, options.parts * batch, length).logits;
  if (!options.cached) return embedding_loss_of(options, trace, embeddings, batch);
  const Tensor change = sum_to(embeddings * trace.input("gradients", embeddings.type()), {});
  const std::vector<Tensor> share = split_evenly(trace.input("share", {change.type().dtype, {2}}), 0, 2);
  return {change - stop_gradient(change) + reshape(share[0], {}), reshape(share[1], {})};
}

Loss embedding_alone(TextClassifier& model, Trace& trace, int64_t texts, int64_t length) {
  const Tensor embeddings = traced_logits(model, trace, texts, length).logits;
  const TensorType number{embeddings.type().dtype, {}};
  return {fill(trace.graph(), number, 0), fill(trace.graph(), number, 1)};
}

void leave_dropout_out(Module& model) {
  model.visit([](Module& module) {
    if (auto* dropout = dynamic_cast<Dropout*>(&module)) dropout->probability = 0;
    if (auto* attention = dynamic_cast<SelfAttention*>(&module)) attention->config.attention_dropout = 0;
  });
}
}  // namespace linnet

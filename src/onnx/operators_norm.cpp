// Normalizations.
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/norm/norm.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
// (x - mean) / sqrt(variance + epsilon) of rows [rows, n], without weights.
Tensor normal_rows(Tensor rows, double epsilon) { return layer_norm(rows, {}, {}, epsilon); }

Tensor scaled(const OnnxCall& call, Tensor x, Tensor weight, Tensor bias) {
  return elementwise(call, {x, weight, bias}, [](Number x, Number weight, Number bias) { return x * weight + bias; });
}

// The weight and bias have a number per channel.
Tensor scaled_channels(const OnnxCall& call, Tensor x, Tensor weight, Tensor bias) {
  const int rank = x.shape().rank();
  return scaled(call, x, compose::by_channel(weight, rank), compose::by_channel(bias, rank));
}

// A factor and a summand per channel from learned statistics, or from those of x in training mode. Running statistics
// of the file are updated while the network is trained, and are the learned ones otherwise.
void batch_normalization(OnnxCall& call) {
  const DType dtype = traced_dtype(call.element());
  const int rank = call.shape().rank();
  const double epsilon = call.real("epsilon", 1e-5), momentum = call.real("momentum", 0.9);
  const Tensor mean = call.tensor(3, dtype), variance = call.tensor(4, dtype);
  const SavedBuffer *mean_buffer = call.in(3).buffer, *variance_buffer = call.in(4).buffer;
  const bool is_trained = Trace::find() && Trace::find()->options().training,
             has_running = mean_buffer && variance_buffer;
  // Before opset 14, the results imply training mode.
  if ((call.flag("training_mode") || (call.opset() < 14 && call.is_wanted(1))) && (is_trained || !has_running)) {
    if (rank < 2) call.fail("training_mode is set for a tensor of shape ", call.shape().text());
    const BatchNormResult found =
        batch_norm(compose::channels_last(call.tensor(0)), call.tensor(1, dtype), call.tensor(2, dtype), epsilon);
    const auto running = [&](Tensor before, Tensor now) {
      return elementwise(call, {before, now}, [=](Number a, Number b) { return a * momentum + b * (1 - momentum); });
    };
    const Tensor next_mean = running(mean, found.mean), next_variance = running(variance, found.variance);
    if (has_running) mean_buffer->update(next_mean), variance_buffer->update(next_variance);
    call.set(1, next_mean, call.element());
    call.set(2, next_variance, call.element());
    if (call.is_wanted(3)) call.set(3, found.mean, call.element());
    if (call.is_wanted(4)) call.set(4, found.variance, call.element());
    return call.set(compose::channels_first(found.y));
  }
  for (size_t i = 1; i < call.results(); ++i) call.set(i, i % 2 == 1 ? mean : variance, call.element());
  const Tensor factor = elementwise(call, {call.tensor(1, dtype), variance},
      [=](Number weight, Number variance) { return weight * rsqrt(variance + epsilon); });
  const Tensor summand = elementwise(call, {call.tensor(2, dtype), mean, factor},
      [](Number bias, Number mean, Number factor) { return bias - mean * factor; });
  if (rank < 2) return call.set(scaled(call, call.tensor(0), factor, summand));
  call.set(scaled_channels(call, call.tensor(0), factor, summand));
}

// The tensor before a move and a reshape that kept the first axis.
std::optional<compose::Moved> reshaped_image(Tensor x) {
  const Node* producer = producer_of(x);
  if (!is(producer, kReshape)) return std::nullopt;
  const Tensor from{x.graph, producer->in[0]};
  auto image = compose::moved(from);
  if (image && (image->order[0] != 0 || from.dim(0) != x.dim(0))) image.reset();
  return image;
}

void instance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  if (s.rank() < 3) call.fail("a tensor of shape ", s.text());
  if (s[1] == 1)
    if (const auto image = reshaped_image(call.tensor(0))) {  // a group norm of one group: a row in any order
      const Tensor y = normal_rows(reshape(image->before, {s[0], s.elements(1, s.rank())}), call.real("epsilon", 1e-5));
      const auto number = [&](size_t operand) { return reshape(call.tensor(operand), {}); };
      const Tensor all = scaled(call, reshape(y, image->before.shape()), number(1), number(2));
      return call.set(reshape(compose::move_axes(all, image->order), s));
    }
  const Tensor rows = reshape(call.tensor(0), {s[0] * s[1], s.elements(2, s.rank())});
  const Tensor y = reshape(normal_rows(rows, call.real("epsilon", 1e-5)), s);
  call.set(scaled_channels(call, y, call.tensor(1), call.tensor(2)));
}

void group_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int64_t groups = call.integer("num_groups", 1);
  if (s.rank() < 2 || groups < 1 || s[1] % groups != 0) call.fail("a tensor of shape ", s.text());
  const Tensor rows = reshape(call.tensor(0), {s[0] * groups, s.elements(1, s.rank()) / groups});
  const Tensor y = reshape(normal_rows(rows, call.real("epsilon", 1e-5)), s);
  Tensor weight = call.tensor(1), bias = call.tensor(2);
  if (weight.shape().elements() == groups && groups != s[1]) {  // before opset 21: one number per group
    const auto spread = [&](Tensor x) {
      return reshape(broadcast_to(reshape(x, {groups, 1}), {groups, s[1] / groups}), {s[1]});
    };
    weight = spread(weight), bias = spread(bias);
  }
  call.set(scaled_channels(call, y, weight, bias));
}

// A value for each element of a row, which is all axes from `axis` on.
Tensor row_parameter(OnnxCall& call, size_t operand, int axis) {
  const Shape row(call.shape().sizes().subspan(axis));
  return reshape(broadcast_to(call.tensor(operand), row), {row.elements()});
}

void layer_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int axis = call.axis_of(-1);
  const Tensor x = reshape(call.tensor(0), {s.elements(0, axis), s.elements(axis, s.rank())});
  const double epsilon = call.real("epsilon", 1e-5);
  const Tensor weight = call.has(1) ? row_parameter(call, 1, axis) : Tensor{};
  const Tensor bias = call.has(2) ? row_parameter(call, 2, axis) : Tensor{};
  const LayerNormAttrs attrs{.epsilon = epsilon, .has_weight = weight.defined(), .has_bias = bias.defined()};
  const std::vector<Tensor> out = op_results(kLayerNorm, x, with_defined({}, {weight, bias}), attrs);
  call.set(reshape(out[0], s));
  Shape statistics = s;
  for (int i = axis; i < s.rank(); ++i) statistics.set(i, 1);
  if (call.is_wanted(1)) call.set(1, reshape(out[1], statistics), OnnxElement::kFloat);
  if (call.is_wanted(2)) call.set(2, reshape(out[2], statistics), OnnxElement::kFloat);
}

void rms_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int axis = call.axis_of(-1);
  const Tensor rows = reshape(call.tensor(0), {s.elements(0, axis), s.elements(axis, s.rank())});
  call.set(reshape(rms_norm(rows, row_parameter(call, 1, axis), call.real("epsilon", 1e-5)), s));
}

void mean_variance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const std::vector<bool> gone = compose::named_axes(call, call.list("axes", {0, 2, 3}), s.rank());
  const std::vector<int> order = named_axes_last(gone);
  int64_t rows = 1;
  for (int axis = 0; axis < s.rank(); ++axis) rows *= gone[axis] ? 1 : s[axis];
  if (s.elements() == 0) return call.set(call.tensor(0));
  const Tensor moved = compose::move_axes(call.tensor(0), order);
  const Tensor y = reshape(normal_rows(reshape(moved, {rows, s.elements() / rows}), 1e-9), moved.shape());
  call.set(compose::move_axes(y, inverse_order(order)));
}

void lp_normalization(OnnxCall& call) {
  const int axis = call.axis_of(-1);
  const bool squares = call.integer("p", 2) == 2;
  const Tensor x = compose::axis_to_end(call.tensor(0), axis);
  const Tensor sizes = elementwise(call, {x}, [=](Number x) { return squares ? square(x) : abs(x); });
  const Tensor y = elementwise(call, {x, sum_last(sizes)}, [=](Number x, Number sum) {
    const Number norm = squares ? sqrt(sum) : sum;
    return select(equal(norm, 0), 0, x / norm);
  });
  call.set(compose::axis_from_end(y, axis));
}

// Divides each channel by a power of the sum of its neighbors' squares.
void local_response_normalization(OnnxCall& call) {
  const double alpha = call.real("alpha", 1e-4), beta = call.real("beta", 0.75), bias = call.real("bias", 1);
  const int64_t size = call.integer("size", 1);
  if (size < 1 || size > 1024) call.fail("a size of ", size);
  const int64_t before = (size - 1) / 2, after = size - 1 - before;
  const Tensor x = call.tensor(0);
  const int64_t channels = x.dim(1);
  const Tensor padded = compose::pad(square(x), 1, before, after, 0);
  Tensor sum;
  for (int64_t i = 0; i < size; ++i) {
    const Tensor part = slice(padded, 1, i, channels);
    sum = sum.defined() ? sum + part : part;
  }
  const double share = alpha / static_cast<double>(size);
  call.set(elementwise(call, {x, sum}, [=](Number x, Number sum) { return x / pow(bias + sum * share, beta); }));
}

// Operators of com.microsoft, which ONNX Runtime's optimizer writes into BERT and GPT-2.

Tensor with_bias(OnnxCall& call) {
  return call.has(1) ? compose::add(call, call.tensor(0), call.tensor(1)) : call.tensor(0);
}

void gelu_of_sum(OnnxCall& call) { call.set(gelu(with_bias(call))); }
Number quick_gelu(Number x, const OnnxCall& call) { return x / (1 + exp(x * -call.real("alpha", 1.702))); }

// Of rows of the last axis; `bias` may be undefined.
Tensor normalized(Tensor x, Tensor weight, Tensor bias, double epsilon) {
  const Shape s = x.shape();
  const Tensor rows = reshape(x, {s.elements(0, s.rank() - 1), s[-1]});
  return reshape(layer_norm(rows, weight, bias, epsilon), s);
}

Tensor rms_normalized(const OnnxCall& call, Tensor x, Tensor weight, double epsilon) {
  const Tensor mean = compose::mean_last(square(x));
  return elementwise(call, {x, mean, weight},
      [=](Number x, Number mean, Number weight) { return x * rsqrt(mean + epsilon) * weight; });
}

// Operands: input, skip, weight, norm's bias unless root-mean-square, sum's bias. Result 3: the sum.
template <bool centered> void skip_normalization(OnnxCall& call) {
  constexpr size_t kSumBias = centered ? 4 : 3;
  Tensor sum = compose::add(call, call.tensor(0), call.tensor(1));
  if (call.has(kSumBias)) sum = compose::add(call, sum, call.tensor(kSumBias));
  const Tensor weight = call.tensor(2);
  const double epsilon = call.real("epsilon", 1e-12);
  if (centered) {
    const Tensor bias = call.has(3) ? call.tensor(3) : call.uniform(0, weight.shape(), weight.type().dtype);
    call.set(normalized(sum, weight, bias, epsilon));
  } else {
    call.set(rms_normalized(call, sum, weight, epsilon));
  }
  if (call.is_wanted(1) || call.is_wanted(2)) call.fail("its mean and variance are read");
  if (call.is_wanted(3)) call.set(3, sum, call.element());
}

void simplified_layer_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  if (call.axis_of(-1) != s.rank() - 1) call.fail("of another axis than the last");
  call.set(rms_normalized(call, call.tensor(0), call.tensor(1), call.real("epsilon", 1e-5)));
}

// Normalized sum of token, position and type embeddings. Result 1: lengths from the mask; result 2: the sum.
void embed_layer_normalization(OnnxCall& call) {
  enum : size_t { kIds, kTypes, kWords, kPositions, kTypeTable, kWeight, kBias, kMask, kPositionIds };
  const auto rows = [&](size_t table, size_t ids) {
    return embedding(call.tensor(table, DType::kF32), cast(call.tensor(ids), DType::kI32));
  };
  const Shape ids = call.shape(kIds);
  if (ids.rank() != 2) call.fail("ids of shape ", ids.text());
  Tensor sum = rows(kWords, kIds);
  sum = compose::add(call, sum,
      call.has(kPositionIds) ? rows(kPositions, kPositionIds)
                             : slice(call.tensor(kPositions, DType::kF32), 0, 0, ids[1]));
  if (call.has(kTypes) && call.has(kTypeTable)) sum = compose::add(call, sum, rows(kTypeTable, kTypes));
  call.integer("mask_index_type", 0);
  call.set(
      0, normalized(sum, call.tensor(kWeight), call.tensor(kBias), call.real("epsilon", 1e-12)), OnnxElement::kFloat);
  if (call.is_wanted(1)) {
    const Tensor lengths = call.has(kMask) ? reshape(sum_last(call.tensor(kMask, DType::kF32)), {ids[0]})
                                           : call.uniform(0, {ids[0]}, DType::kF32);
    call.set(1, lengths, OnnxElement::kInt32);
  }
  if (call.is_wanted(2)) call.set(2, sum, OnnxElement::kFloat);
}

void fused_matmul(OnnxCall& call) {
  if (call.flag("transBatchA") || call.flag("transBatchB")) call.fail("moved batch axes");
  const Tensor a = call.tensor(0), b = call.tensor(1);
  if (a.shape().rank() < 2 || (b.shape().rank() != 2 && b.shape().rank() != a.shape().rank()))
    call.fail("operands of shapes ", a.shape().text(), " and ", b.shape().text());
  const double alpha = call.real("alpha", 1);
  bool trans_a = call.flag("transA");
  Tensor left = a;
  if (trans_a && b.shape().rank() == 2 && a.shape().rank() > 2) {  // one product of all rows
    std::vector<int> order = named_axes_last(std::vector<bool>(a.shape().rank()));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    left = compose::move_axes(a, order), trans_a = false;
  }
  const Tensor y = matmul(left, b, trans_a, call.flag("transB"));
  call.set(alpha == 1 ? y : y * alpha);
}
}  // namespace

OnnxOperatorRows norm_operators() {
  return {
      {"BatchNormalization", batch_normalization,
          "in training mode with the statistics of the batch while the network is trained", {3, 4}},
      {"GroupNormalization", group_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LayerNormalization", layer_normalization},
      {"LpNormalization", lp_normalization},
      {"LRN", local_response_normalization},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"RMSNormalization", rms_normalization},
      {"SimplifiedLayerNormalization", simplified_layer_normalization, "over the last axis"},
      {"com.microsoft.BiasGelu", gelu_of_sum},
      {"com.microsoft.EmbedLayerNormalization", embed_layer_normalization},
      {"com.microsoft.FastGelu", [](OnnxCall& call) { call.set(gelu_tanh(with_bias(call))); }},
      {"com.microsoft.FusedMatMul", fused_matmul, "without moved batch axes"},
      {"com.microsoft.Gelu", gelu_of_sum},
      {"com.microsoft.QuickGelu", compose::unary(quick_gelu)},
      {"com.microsoft.SkipLayerNormalization", skip_normalization<true>},
      {"com.microsoft.SkipSimplifiedLayerNormalization", skip_normalization<false>},
  };
}
}  // namespace linnet

// Normalizations.
#include <numeric>

#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"
#include "onnx/operators.h"

namespace linnet {
namespace {

using compose::elementwise;
using compose::Number;

// (x - mean) / sqrt(variance + epsilon) of rows [rows, n], without weights.
Tensor normal_rows(Tensor rows, double epsilon) { return layer_norm(rows, {}, {}, epsilon); }

Tensor scaled(const OnnxCall& call, Tensor x, Tensor weight, Tensor bias) {
  return elementwise(call, {x, weight, bias}, [](Number x, Number weight, Number bias) { return x * weight + bias; });
}

// With the statistics that the network learned: a factor and a summand for each channel.
void batch_normalization(OnnxCall& call) {
  if (call.integer("training_mode", 0) != 0) call.fail("training_mode is set");
  const DType dtype = traced_dtype(call.element());
  const int rank = call.shape().rank();
  const double epsilon = call.real("epsilon", 1e-5);
  const Tensor factor = elementwise(call, {call.tensor(1, dtype), call.tensor(4, dtype)},
                                    [=](Number weight, Number variance) { return weight * rsqrt(variance + epsilon); });
  const Tensor summand = elementwise(call, {call.tensor(2, dtype), call.tensor(3, dtype), factor},
                                     [](Number bias, Number mean, Number factor) { return bias - mean * factor; });
  if (rank < 2) return call.set(scaled(call, call.tensor(0), factor, summand));
  call.set(scaled(call, call.tensor(0), compose::by_channel(factor, rank), compose::by_channel(summand, rank)));
}

void instance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  if (s.rank() < 3) call.fail("a tensor of shape " + s.text());
  const Tensor rows = reshape(call.tensor(0), {s[0] * s[1], s.elements(2, s.rank())});
  const Tensor y = reshape(normal_rows(rows, call.real("epsilon", 1e-5)), s);
  call.set(
      scaled(call, y, compose::by_channel(call.tensor(1), s.rank()), compose::by_channel(call.tensor(2), s.rank())));
}

void group_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int64_t groups = call.integer("num_groups", 1);
  if (s.rank() < 2 || groups < 1 || s[1] % groups != 0) call.fail("a tensor of shape " + s.text());
  const Tensor rows = reshape(call.tensor(0), {s[0] * groups, s.elements(1, s.rank()) / groups});
  const Tensor y = reshape(normal_rows(rows, call.real("epsilon", 1e-5)), s);
  Tensor weight = call.tensor(1), bias = call.tensor(2);
  if (weight.shape().elements() == groups && groups != s[1]) {  // before opset 21: one number for each group
    const auto spread = [&](Tensor x) {
      return reshape(compose::expand(reshape(x, {groups, 1}), {groups, s[1] / groups}), {s[1]});
    };
    weight = spread(weight), bias = spread(bias);
  }
  call.set(scaled(call, y, compose::by_channel(weight, s.rank()), compose::by_channel(bias, s.rank())));
}

// An operand for each element of a row, which is all axes from `axis` on.
Tensor row_parameter(OnnxCall& call, size_t operand, int axis) {
  const Shape row(call.shape().sizes().subspan(static_cast<size_t>(axis)));
  return reshape(compose::expand(call.tensor(operand), row), {row.elements()});
}

void layer_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int axis = call.axis(call.integer("axis", -1), s.rank());
  const Tensor x = reshape(call.tensor(0), {s.elements(0, axis), s.elements(axis, s.rank())});
  const double epsilon = call.real("epsilon", 1e-5);
  const Tensor weight = call.has(1) ? row_parameter(call, 1, axis) : Tensor{};
  const Tensor bias = call.has(2) ? row_parameter(call, 2, axis) : Tensor{};
  const LayerNormAttrs attrs{.epsilon = epsilon, .has_weight = weight.defined(), .has_bias = bias.defined()};
  std::vector<Tensor> in{x};
  for (const Tensor& each : {weight, bias})
    if (each.defined()) in.push_back(each);
  const std::vector<Tensor> out = call.graph().add(kLayerNorm, in, attrs, SourceLine::current());
  call.set(reshape(out[0], s));
  Shape statistics = s;
  for (int i = axis; i < s.rank(); ++i) statistics.set(i, 1);
  if (call.is_wanted(1)) call.set(1, reshape(out[1], statistics), OnnxElement::kFloat);
  if (call.is_wanted(2)) call.set(2, reshape(out[2], statistics), OnnxElement::kFloat);
}

void rms_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int axis = call.axis(call.integer("axis", -1), s.rank());
  const Tensor rows = reshape(call.tensor(0), {s.elements(0, axis), s.elements(axis, s.rank())});
  call.set(reshape(rms_norm(rows, row_parameter(call, 1, axis), call.real("epsilon", 1e-5)), s));
}

void mean_variance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const std::vector<bool> gone = compose::named_axes(call, call.list("axes", {0, 2, 3}), s.rank());
  const std::vector<int> order = compose::named_axes_last(gone);
  int64_t rows = 1;
  for (int axis = 0; axis < s.rank(); ++axis) rows *= gone[static_cast<size_t>(axis)] ? 1 : s[axis];
  if (s.elements() == 0) return call.set(call.tensor(0));
  const Tensor moved = compose::move_axes(call.tensor(0), order);
  const Tensor y = reshape(normal_rows(reshape(moved, {rows, s.elements() / rows}), 1e-9), moved.shape());
  call.set(compose::move_axes(y, compose::inverse(order)));
}

void lp_normalization(OnnxCall& call) {
  const int rank = call.shape().rank();
  const int axis = call.axis(call.integer("axis", -1), rank);
  const bool squares = call.integer("p", 2) == 2;
  const Tensor x = compose::axis_to_end(call.tensor(0), axis);
  const Tensor sizes = elementwise(call, {x}, [=](Number x) { return squares ? square(x) : abs(x); });
  const Tensor y = elementwise(call, {x, compose::sum_last(sizes)}, [=](Number x, Number sum) {
    const Number norm = squares ? sqrt(sum) : sum;
    return select(equal(norm, 0), 0, x / norm);
  });
  call.set(compose::axis_from_end(y, axis));
}

// Each channel is divided by a power of the sum of squares of those around it.
void local_response_normalization(OnnxCall& call) {
  const double alpha = call.real("alpha", 1e-4), beta = call.real("beta", 0.75), bias = call.real("bias", 1);
  const int64_t size = call.integer("size", 1), before = (size - 1) / 2, after = size - 1 - before;
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

}  // namespace

OnnxOperatorRows norm_operators() {
  return {
      {"BatchNormalization", batch_normalization, "with learned statistics, as in inference"},
      {"GroupNormalization", group_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LayerNormalization", layer_normalization},
      {"LpNormalization", lp_normalization},
      {"LRN", local_response_normalization},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"RMSNormalization", rms_normalization},
  };
}

}  // namespace linnet

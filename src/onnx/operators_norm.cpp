// Normalizations.
#include <numeric>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

// One number for each channel beside x [N, C, ...].
Tensor by_channel(Tensor values, int rank) {
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.push_back(axis == 1 ? values.shape().elements() : 1);
  return reshape(values, shape);
}

// (x - mean) / sqrt(variance + epsilon) of rows [rows, n], without weights.
Tensor normal_rows(Tensor rows, double epsilon) { return layer_norm(rows, {}, {}, epsilon); }

Tensor scaled(const OnnxCall& call, Tensor x, Tensor weight, Tensor bias) {
  return elementwise(call, {x, weight, bias}, [](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kAdd, e.apply(Scalar::kMul, v[0], v[1]), v[2]);
  });
}

// With the statistics that the network learned: a factor and a summand for each channel.
void batch_normalization(OnnxCall& call) {
  if (call.integer("training_mode", 0) != 0) call.fail("training_mode is set");
  const DType dtype = traced_dtype(call.element());
  const int rank = call.shape().rank();
  const double epsilon = call.real("epsilon", 1e-5);
  const Tensor factor =
      elementwise(call, {call.tensor(1, dtype), call.tensor(4, dtype)}, [=](E& e, const std::vector<Ref>& x) {
        return e.apply(Scalar::kMul, x[0], e.apply(Scalar::kRsqrt, e.apply(Scalar::kAdd, x[1], e.constant(epsilon))));
      });
  const Tensor summand = elementwise(
      call, {call.tensor(2, dtype), call.tensor(3, dtype), factor},
      [](E& e, const std::vector<Ref>& x) { return e.apply(Scalar::kSub, x[0], e.apply(Scalar::kMul, x[1], x[2])); });
  if (rank < 2) return call.set(scaled(call, call.tensor(0), factor, summand));
  call.set(scaled(call, call.tensor(0), by_channel(factor, rank), by_channel(summand, rank)));
}

void instance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  if (s.rank() < 3) call.fail("a tensor of shape " + s.text());
  const Tensor rows = reshape(call.tensor(0), {s[0] * s[1], s.elements(2, s.rank())});
  const Tensor y = reshape(normal_rows(rows, call.real("epsilon", 1e-5)), s);
  call.set(scaled(call, y, by_channel(call.tensor(1), s.rank()), by_channel(call.tensor(2), s.rank())));
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
  call.set(scaled(call, y, by_channel(weight, s.rank()), by_channel(bias, s.rank())));
}

void layer_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const int axis = call.axis(call.integer("axis", -1), s.rank());
  const int64_t width = s.elements(axis, s.rank()), rows = s.elements(0, axis);
  const Tensor x = reshape(call.tensor(0), {rows, width});
  const auto parameter = [&](size_t i) {
    if (!call.has(i)) return Tensor{};
    return reshape(compose::expand(call.tensor(i), Shape(s.sizes().subspan(static_cast<size_t>(axis)))), {width});
  };
  const double epsilon = call.real("epsilon", 1e-5);
  const Tensor weight = parameter(1), bias = parameter(2);
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
  const int64_t width = s.elements(axis, s.rank());
  const Tensor weight =
      reshape(compose::expand(call.tensor(1), Shape(s.sizes().subspan(static_cast<size_t>(axis)))), {width});
  const Tensor rows = reshape(call.tensor(0), {s.elements(0, axis), width});
  call.set(reshape(rms_norm(rows, weight, call.real("epsilon", 1e-5)), s));
}

void mean_variance_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  const std::vector<int64_t> axes = call.list("axes", {0, 2, 3});
  std::vector<bool> gone(static_cast<size_t>(s.rank()));
  for (const int64_t axis : axes) gone[static_cast<size_t>(call.axis(axis, s.rank()))] = true;
  std::vector<int> order;
  int64_t rows = 1;
  for (const bool last : {false, true})
    for (int axis = 0; axis < s.rank(); ++axis)
      if (gone[static_cast<size_t>(axis)] == last) {
        order.push_back(axis);
        if (!last) rows *= s[axis];
      }
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
  const Tensor sizes = elementwise(call, {x}, [=](E& e, const std::vector<Ref>& v) {
    return e.apply(squares ? Scalar::kSquare : Scalar::kAbs, v[0]);
  });
  const Tensor y = elementwise(call, {x, compose::sum_last(sizes)}, [=](E& e, const std::vector<Ref>& v) {
    const Ref norm = squares ? e.apply(Scalar::kSqrt, v[1]) : v[1];
    return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, norm, e.constant(0)), e.constant(0),
                   e.apply(Scalar::kDiv, v[0], norm));
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
  call.set(elementwise(call, {x, sum}, [=](E& e, const std::vector<Ref>& v) {
    const Ref base = e.apply(Scalar::kAdd, e.constant(bias),
                             e.apply(Scalar::kMul, v[1], e.constant(alpha / static_cast<double>(size))));
    return e.apply(Scalar::kDiv, v[0], e.apply(Scalar::kPow, base, e.constant(beta)));
  }));
}

}  // namespace

void add_norm_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"BatchNormalization", batch_normalization, "with learned statistics, as in inference"},
      {"GroupNormalization", group_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LayerNormalization", layer_normalization},
      {"LpNormalization", lp_normalization},
      {"LRN", local_response_normalization},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"RMSNormalization", rms_normalization},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/plan/state_names.h"
#include "training/trainer/range_update.h"

namespace linnet {
namespace {

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastSquare = 1e-30;

using Ref = ExpressionBuilder::Ref;

template <class... Tensors>
Tensor computed(ExpressionBuilder& e, Ref result, const Tensors&... operands) {
  return pointwise(e.finish(result), std::array{operands...}, SourceLine::current());
}

Ref times(ExpressionBuilder& e, Ref a, Ref b) { return e.apply(Scalar::kMul, a, b); }

// from + (to - from) * share.
Ref moved_towards(ExpressionBuilder& e, Ref from, Ref to, Ref share) {
  return e.apply(Scalar::kAdd, from, times(e, e.apply(Scalar::kSub, to, from), share));
}

// Operand 0 as it is where the step is not finite, which operand 3 says.
Ref if_finite(ExpressionBuilder& e, Ref next) { return e.apply(Scalar::kSelect, e.input(3), next, e.input(0)); }

// m + (1 - momentum) (g - m), where operand 0 is m, 1 the gradient and 2 its factor.
Ref next_momentum(ExpressionBuilder& e, double momentum) {
  return moved_towards(e, e.input(0), times(e, e.input(1), e.input(2)), e.constant(1 - momentum));
}

Tensor direction(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  ExpressionBuilder e;
  const Ref next = next_momentum(e, momentum), g = times(e, e.input(1), e.input(2));
  const Ref sum = e.apply(Scalar::kAdd, times(e, g, e.constant(1 - momentum)), times(e, next, e.constant(momentum)));
  return computed(e, sum, m, gradient, factors.scale);
}

Tensor updated_momentum(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  ExpressionBuilder e;
  return computed(e, if_finite(e, next_momentum(e, momentum)), m, gradient, factors.scale, factors.finite);
}

// old + share (sum * factor - old), or old where the step is not finite.
Tensor next_mean(const Tensor& old, const Tensor& sum, double factor, const Tensor& share,
                 const UpdateFactors& factors) {
  ExpressionBuilder e;
  const Ref mean = factor == 1 ? e.input(1) : times(e, e.input(1), e.constant(factor));
  return computed(e, if_finite(e, moved_towards(e, e.input(0), mean, e.input(2))), old, sum, share, factors.finite);
}

// parameters * (1 - rate * decay) - rate * length * direction, all of the same shape; the parameters as they are where
// the step is not finite. `rate` [] is the learning rate.
Tensor stepped(const Tensor& parameters, const Tensor& direction, const Tensor& rate, const UpdateFactors& factors,
               double length, double decay) {
  ExpressionBuilder e;
  const Ref p = e.input(0), r = e.input(2);
  const Ref kept = e.apply(Scalar::kSub, e.constant(1), times(e, r, e.constant(decay)));
  const Ref shrunk = decay == 0 ? p : times(e, p, kept);
  const Ref step = times(e, times(e, r, e.constant(length)), e.input(1));
  return computed(e, if_finite(e, e.apply(Scalar::kSub, shrunk, step)), parameters, direction, rate, factors.finite);
}

// step^-decay_power: the share of this step's squares in the second moment.
Tensor fresh_share(const Tensor& control, double decay_power) {
  ExpressionBuilder e;
  const Ref share = e.apply(Scalar::kPow, e.input(0), e.constant(-decay_power));
  return computed(e, share, reshape(slice(control, 0, 1, 1), {}));
}

// (gradient * scale)^2 + 1e-30.
Tensor squares_of(const Tensor& gradient, const Tensor& scale) {
  ExpressionBuilder e;
  const Ref squares = e.apply(Scalar::kSquare, times(e, e.input(0), e.input(1)));
  return computed(e, e.apply(Scalar::kAdd, squares, e.constant(kLeastSquare)), gradient, scale);
}

// gradient * scale / sqrt(v) where v = row * column / mean(row).
Tensor direction(const Tensor& gradient, const Tensor& row, const Tensor& column, const Tensor& scale) {
  const int64_t rows = row.shape().elements();
  const Tensor mean = sum_to(row, {}) * (1.0 / static_cast<double>(rows));
  const Tensor by_row = reshape(rsqrt(row), {rows, 1}), by_column = rsqrt(column) * (mean * rsqrt(mean));
  return gradient * scale * by_row * by_column;
}

// The direction with a root mean square of at most 1.
Tensor clipped(const Tensor& u) {
  ExpressionBuilder e;
  const Ref mean = times(e, e.input(1), e.constant(1.0 / static_cast<double>(u.shape().elements())));
  const Ref most = e.apply(Scalar::kMax, e.constant(1), e.apply(Scalar::kSqrt, mean));
  return computed(e, e.apply(Scalar::kDiv, e.input(0), most), u, sum_to(square(u), {}));
}

Tensor joined(std::span<const Tensor> pieces) { return concat(pieces[0], pieces.subspan(1), 0); }

// A flat tensor cut along `sizes`, whose pieces are updated one after another; without any, no tensors.
struct Parts {
  Parts(const Tensor& whole, const std::vector<int64_t>& sizes) : whole(whole), old(split(whole, 0, sizes)) {}
  Parts(Graph& graph, const std::string& name, DType dtype, const std::vector<int64_t>& sizes) {
    int64_t count = 0;
    for (const int64_t size : sizes) count += size;
    if (count > 0) *this = Parts(graph.input(name, {dtype, {count}}), sizes);
  }
  const Tensor& current() const { return old[next.size()]; }
  void update(Graph& graph) const {
    if (whole.defined()) graph.update(whole, joined(next));
  }
  Tensor whole;
  std::vector<Tensor> old, next;
};

// What both optimizers update a range with, piece by piece: the parameters and, if asked for, their average.
struct RangeUpdate {
  RangeUpdate(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
              const OptimizerAttrs& attrs, const RangeGradient& gradient)
      : graph(graph),
        gradient(gradient),
        factors(update_factors(gradient.squares, gradient.count, gradient.control, attrs)),
        rate(reshape(slice(gradient.control, 0, 0, 1), {})),
        dtype(gradient.flat.type().dtype) {
    for (const RangePiece& piece : pieces) {
      sizes.push_back(piece.count);
      if (!piece.is_matrix) other_sizes.push_back(piece.count);
    }
    parameters.emplace(range_parameters(graph, range, gradient), sizes);
    gradients = split(gradient.flat, 0, sizes);
  }
  // Moves the next piece along a direction of a length.
  void step(const RangePiece& piece, const Tensor& along, double length, const OptimizerAttrs& attrs) {
    const Tensor next = stepped(parameters->current(), along, rate, factors, attrs.rate_factor * length,
                                attrs.rate_factor * (piece.decays ? attrs.weight_decay : 0));
    if (average) average->next.push_back(next_mean(average->current(), next, 1, factors.ema_rest, factors));
    parameters->next.push_back(next);
  }
  Parts flat(const char* name, const TrainedRange& range) const {
    return {graph.input(name + range.suffix, gradient.flat.type()), sizes};
  }
  void finish() const { update_parameters(graph, parameters->whole, joined(parameters->next), gradient); }

  Graph& graph;
  const RangeGradient& gradient;
  const UpdateFactors factors;
  const Tensor rate;
  const DType dtype;
  std::vector<int64_t> sizes, other_sizes;  // of all pieces, and of those that are no matrices
  std::vector<Tensor> gradients;
  std::optional<Parts> parameters, average;
};

}  // namespace

Tensor orthogonal(At x) {
  const bool tall = x.value.dim(0) > x.value.dim(1);  // the smaller of x x^T and x^T x is taken
  Tensor y = x.value * rsqrt(sum_to(square(x), {}) + 1e-30);
  for (int i = 0; i < kIterations; ++i) {
    const Tensor a = matmul(y, y, tall, !tall);
    const Tensor b = a * kB + matmul(a * kC, a);
    y = y * kA + (tall ? matmul(y, b) : matmul(b, y));
  }
  return y;
}

void update_by_muon(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                    const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  RangeUpdate update(graph, pieces, range, attrs, gradient);
  Parts moment1 = update.flat(state::kMoment1, range);
  if (attrs.ema_decay > 0) update.average = update.flat(state::kAverage, range);
  OptimizerAttrs adamw = attrs;
  adamw.kind = OptimizerAttrs::Kind::kAdam, adamw.decoupled = true;
  Parts moment2(graph, "moment2.rest" + range.suffix, update.dtype, update.other_sizes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    const Tensor m = moment1.current();
    if (piece.is_matrix) {
      const Tensor u = direction(m, update.gradients[i], update.factors, attrs.momentum);
      const Tensor x = reshape(orthogonal(reshape(u, {piece.rows, piece.columns})), {piece.count});
      moment1.next.push_back(updated_momentum(m, update.gradients[i], update.factors, attrs.momentum));
      update.step(piece, x, 0.2 * std::sqrt(static_cast<double>(std::max(piece.rows, piece.columns))), attrs);
      continue;
    }
    adamw.decay_count = std::clamp<int64_t>(range.decay_count - piece.offset, 0, piece.count);
    const OptimizerState next = optimizer_step(
        {update.parameters->current(), m, moment2.current(), update.average ? update.average->current() : Tensor{}},
        update.gradients[i], gradient.squares, gradient.count, gradient.control, adamw);
    update.parameters->next.push_back(next.parameters), moment1.next.push_back(next.moment1);
    moment2.next.push_back(next.moment2);
    if (update.average) update.average->next.push_back(next.ema);
  }
  update.finish();
  moment1.update(graph);
  if (update.average) update.average->update(graph);
  moment2.update(graph);
}

int64_t factor_elements(const std::vector<RangePiece>& pieces) {
  int64_t count = 0;
  for (const RangePiece& piece : pieces) count += piece.rows + piece.columns;
  return count;
}

void update_by_adafactor(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                         const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  RangeUpdate update(graph, pieces, range, attrs, gradient);
  if (attrs.ema_decay > 0) update.average = update.flat(state::kAverage, range);
  const Tensor fresh = fresh_share(gradient.control, attrs.decay_power), scale = update.factors.scale;
  std::vector<int64_t> factor_sizes;
  for (const RangePiece& piece : pieces)
    if (piece.is_matrix) factor_sizes.insert(factor_sizes.end(), {piece.rows, piece.columns});
  Parts factors(graph, "moment2.factors" + range.suffix, update.dtype, factor_sizes),
      others(graph, "moment2.rest" + range.suffix, update.dtype, update.other_sizes);
  const auto add = [&](Parts& moments, const Tensor& sum, double factor) {
    return moments.next.emplace_back(next_mean(moments.current(), sum, factor, fresh, update.factors));
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    Tensor u;
    if (piece.is_matrix) {
      const Tensor g = reshape(update.gradients[i], {piece.rows, piece.columns}), squares = squares_of(g, scale);
      const Tensor by_row = reshape(sum_to(squares, {piece.rows, 1}), {piece.rows}),
                   by_column = sum_to(squares, {piece.columns});
      const Tensor row = add(factors, by_row, 1.0 / static_cast<double>(piece.columns)),
                   column = add(factors, by_column, 1.0 / static_cast<double>(piece.rows));
      u = direction(g, row, column, scale);
    } else {
      u = update.gradients[i] * scale * rsqrt(add(others, squares_of(update.gradients[i], scale), 1));
    }
    update.step(piece, reshape(clipped(u), {piece.count}), 1, attrs);
  }
  update.finish();
  if (update.average) update.average->update(graph);
  factors.update(graph), others.update(graph);
}

}  // namespace linnet

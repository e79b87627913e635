#include "training/trainer/matrix_updates.h"
#include <algorithm>
#include <array>
#include <cmath>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/plan/state_names.h"

namespace linnet {

namespace {

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

using Ref = ExpressionBuilder::Ref;

// m + (1 - momentum) (g - m), where operand 0 is m, 1 the gradient and 2 its factor.
Ref next_momentum(ExpressionBuilder& e, double momentum) {
  const Ref m = e.input(0), g = e.apply(Scalar::kMul, e.input(1), e.input(2));
  return moved_towards(e, m, g, e.constant(1 - momentum));
}

Tensor direction(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  ExpressionBuilder e;
  const Ref next = next_momentum(e, momentum), g = e.apply(Scalar::kMul, e.input(1), e.input(2));
  const Ref sum = e.apply(Scalar::kAdd, e.apply(Scalar::kMul, g, e.constant(1 - momentum)),
                          e.apply(Scalar::kMul, next, e.constant(momentum)));
  return pointwise(e.finish(sum), std::array{m, gradient, factors.scale}, SourceLine::current());
}

Tensor updated_momentum(const Tensor& m, const Tensor& gradient, const UpdateFactors& factors, double momentum) {
  ExpressionBuilder e;
  const Ref next = next_momentum(e, momentum);
  return pointwise(e.finish(e.apply(Scalar::kSelect, e.input(3), next, e.input(0))),
                   std::array{m, gradient, factors.scale, factors.finite}, SourceLine::current());
}

using Ref = ExpressionBuilder::Ref;

constexpr double kLeastSquare = 1e-30;

// What all tensors share: scalars of the step.
struct Step {
  UpdateFactors factors;
  Tensor rate, fresh;
};

// step^-decay_power: the share of this step's squares in the second moment.
Tensor fresh_share(const Tensor& control, double decay_power) {
  ExpressionBuilder e;
  const Ref share = e.apply(Scalar::kPow, e.input(0), e.constant(-decay_power));
  return pointwise(e.finish(share), std::array{reshape(slice(control, 0, 1, 1), {})}, SourceLine::current());
}

// (gradient * scale)^2 + 1e-30.
Tensor squares_of(const Tensor& gradient, const Step& step) {
  ExpressionBuilder e;
  const Ref g = e.apply(Scalar::kMul, e.input(0), e.input(1));
  return pointwise(e.finish(e.apply(Scalar::kAdd, e.apply(Scalar::kSquare, g), e.constant(kLeastSquare))),
                   std::array{gradient, step.factors.scale}, SourceLine::current());
}

// old + fresh (sum * factor - old), or old where the step is not finite.
Tensor next_moment(const Tensor& old, const Tensor& sum, double factor, const Step& step) {
  ExpressionBuilder e;
  const Ref mean = e.apply(Scalar::kMul, e.input(1), e.constant(factor));
  const Ref next = moved_towards(e, e.input(0), mean, e.input(2));
  return pointwise(e.finish(e.apply(Scalar::kSelect, e.input(3), next, e.input(0))),
                   std::array{old, sum, step.fresh, step.factors.finite}, SourceLine::current());
}

// gradient * scale / sqrt(v) where v = row * column / mean(row).
Tensor direction(const Tensor& gradient, const Tensor& row, const Tensor& column, const Step& step) {
  const int64_t rows = row.shape().elements();
  const Tensor mean = sum_to(row, {}) * (1.0 / static_cast<double>(rows));
  const Tensor by_row = reshape(rsqrt(row), {rows, 1}), by_column = rsqrt(column) * (mean * rsqrt(mean));
  return gradient * step.factors.scale * by_row * by_column;
}

// The direction with a root mean square of at most 1.
Tensor clipped(const Tensor& u) {
  ExpressionBuilder e;
  const Ref mean = e.apply(Scalar::kMul, e.input(1), e.constant(1.0 / static_cast<double>(u.shape().elements())));
  const Ref most = e.apply(Scalar::kMax, e.constant(1), e.apply(Scalar::kSqrt, mean));
  return pointwise(e.finish(e.apply(Scalar::kDiv, e.input(0), most)), std::array{u, sum_to(square(u), {})},
                   SourceLine::current());
}

// A packed state cut along `sizes`; without any, no tensors.
struct PackedParts {
  PackedParts(Graph& graph, const std::string& name, DType dtype, const std::vector<int64_t>& sizes) : graph(graph) {
    int64_t count = 0;
    for (const int64_t size : sizes) count += size;
    if (count == 0) return;
    whole = graph.input(name, {dtype, {count}});
    old = split(whole, 0, sizes);
  }
  const Tensor& current() const { return old[next.size()]; }
  void update() const {
    if (whole.defined()) graph.update(whole, joined(next));
  }
  Graph& graph;
  Tensor whole;
  std::vector<Tensor> old, next;
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
  RangeStates states(graph, range, gradient, {state::kMoment1}, attrs.ema_decay > 0);
  const UpdateFactors factors = update_factors(gradient.squares, gradient.count, gradient.control, attrs);
  const Tensor rate = reshape(slice(gradient.control, 0, 0, 1), {});
  states.cut(pieces);
  const std::vector<Tensor> gradients = cut_pieces(gradient.flat, pieces);

  OptimizerAttrs adamw = attrs;
  adamw.kind = OptimizerAttrs::Kind::kAdam, adamw.decoupled = true;
  const int64_t others = other_elements(pieces);
  Tensor moment2;
  std::vector<Tensor> old_moment2, new_moment2;
  if (others > 0) {
    moment2 = graph.input("moment2.rest" + range.suffix, {gradient.flat.type().dtype, {others}});
    std::vector<int64_t> sizes;
    for (const RangePiece& piece : pieces)
      if (!piece.is_matrix) sizes.push_back(piece.count);
    old_moment2 = split(moment2, 0, sizes);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    const Tensor p = states.old(0, i), m = states.old(1, i);
    if (!piece.is_matrix) {
      adamw.decay_count = std::clamp<int64_t>(range.decay_count - piece.offset, 0, piece.count);
      const OptimizerState next =
          optimizer_step({p, m, old_moment2[new_moment2.size()], states.old_average(i)}, gradients[i], gradient.squares,
                         gradient.count, gradient.control, adamw);
      states.set(0, next.parameters), states.set(1, next.moment1), states.set_average(next.ema);
      new_moment2.push_back(next.moment2);
      continue;
    }
    const Tensor u = reshape(direction(m, gradients[i], factors, attrs.momentum), {piece.rows, piece.columns});
    const Tensor x = reshape(orthogonal(u), {piece.count});
    const double length = 0.2 * std::sqrt(static_cast<double>(std::max(piece.rows, piece.columns)));
    const Tensor next = stepped(p, x, rate, factors, attrs.rate_factor * length,
                                attrs.rate_factor * (piece.decays ? attrs.weight_decay : 0));
    states.set(1, updated_momentum(m, gradients[i], factors, attrs.momentum));
    states.set(0, next);
    if (attrs.ema_decay > 0) states.set_average(averaged(states.old_average(i), next, factors));
  }
  states.update();
  if (others > 0) graph.update(moment2, joined(new_moment2));
}

int64_t factor_elements(const std::vector<RangePiece>& pieces) {
  int64_t count = 0;
  for (const RangePiece& piece : pieces) count += piece.rows + piece.columns;
  return count;
}

void update_by_adafactor(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                         const OptimizerAttrs& attrs, const RangeGradient& gradient) {
  RangeStates states(graph, range, gradient, {}, attrs.ema_decay > 0);
  const Step step{update_factors(gradient.squares, gradient.count, gradient.control, attrs),
                  reshape(slice(gradient.control, 0, 0, 1), {}), fresh_share(gradient.control, attrs.decay_power)};
  states.cut(pieces);
  const std::vector<Tensor> gradients = cut_pieces(gradient.flat, pieces);
  std::vector<int64_t> factor_sizes, other_sizes;
  for (const RangePiece& piece : pieces)
    if (piece.is_matrix) factor_sizes.insert(factor_sizes.end(), {piece.rows, piece.columns});
    else other_sizes.push_back(piece.count);
  const DType dtype = gradient.flat.type().dtype;
  PackedParts factors(graph, "moment2.factors" + range.suffix, dtype, factor_sizes),
      others(graph, "moment2.rest" + range.suffix, dtype, other_sizes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const RangePiece& piece = pieces[i];
    const auto count = static_cast<double>(piece.count);
    Tensor u;
    if (piece.is_matrix) {
      const Tensor g = reshape(gradients[i], {piece.rows, piece.columns}), squares = squares_of(g, step);
      const Tensor by_row = reshape(sum_to(squares, {piece.rows, 1}), {piece.rows}),
                   by_column = sum_to(squares, {piece.columns});
      for (const Tensor& sum : {by_row, by_column}) {
        const double mean = static_cast<double>(sum.shape().elements()) / count;  // of a sum
        factors.next.push_back(next_moment(factors.current(), sum, mean, step));
      }
      u = direction(g, factors.next.end()[-2], factors.next.back(), step);
    } else {
      others.next.push_back(next_moment(others.current(), squares_of(gradients[i], step), 1, step));
      u = gradients[i] * step.factors.scale * rsqrt(others.next.back());
    }
    const Tensor next = stepped(states.old(0, i), reshape(clipped(u), {piece.count}), step.rate, step.factors,
                                attrs.rate_factor, attrs.rate_factor * (piece.decays ? attrs.weight_decay : 0));
    states.set(0, next);
    if (attrs.ema_decay > 0) states.set_average(averaged(states.old_average(i), next, step.factors));
  }
  states.update();
  factors.update(), others.update();
}

using Ref = ExpressionBuilder::Ref;

std::vector<Tensor> cut_pieces(const Tensor& flat, const std::vector<RangePiece>& pieces) {
  std::vector<int64_t> sizes;
  for (const RangePiece& piece : pieces) sizes.push_back(piece.count);
  return split(flat, 0, sizes);
}

Tensor joined(std::span<const Tensor> pieces) { return concat(pieces[0], pieces.subspan(1), 0); }

Ref moved_towards(ExpressionBuilder& e, Ref from, Ref to, Ref share) {
  return e.apply(Scalar::kAdd, from, e.apply(Scalar::kMul, e.apply(Scalar::kSub, to, from), share));
}

Tensor stepped(const Tensor& parameters, const Tensor& direction, const Tensor& rate, const UpdateFactors& factors,
               double length, double decay) {
  ExpressionBuilder e;
  const Ref p = e.input(0), r = e.input(2);
  const Ref kept = e.apply(Scalar::kSub, e.constant(1), e.apply(Scalar::kMul, r, e.constant(decay)));
  const Ref shrunk = decay == 0 ? p : e.apply(Scalar::kMul, p, kept);
  const Ref step = e.apply(Scalar::kMul, e.apply(Scalar::kMul, r, e.constant(length)), e.input(1));
  const Ref next = e.apply(Scalar::kSelect, e.input(3), e.apply(Scalar::kSub, shrunk, step), p);
  return pointwise(e.finish(next), std::array{parameters, direction, rate, factors.finite}, SourceLine::current());
}

Tensor averaged(const Tensor& average, const Tensor& parameters, const UpdateFactors& factors) {
  ExpressionBuilder e;
  const Ref next = moved_towards(e, e.input(0), e.input(1), e.input(2));
  return pointwise(e.finish(e.apply(Scalar::kSelect, e.input(3), next, e.input(0))),
                   std::array{average, parameters, factors.ema_rest, factors.finite}, SourceLine::current());
}

RangeStates::RangeStates(Graph& graph, const TrainedRange& range, const RangeGradient& gradient,
                         std::vector<const char*> names, bool has_average)
    : graph_(graph), gradient_(gradient), has_average_(has_average) {
  if (has_average) names.push_back("ema");
  states_.push_back({range_parameters(graph, range, gradient)});
  for (const char* name : names) states_.push_back({graph.input(name + range.suffix, gradient.flat.type())});
}

void RangeStates::cut(const std::vector<RangePiece>& pieces) {
  for (State& state : states_) state.old = cut_pieces(state.flat, pieces);
}

void RangeStates::update() {
  update_parameters(graph_, states_[0].flat, joined(states_[0].next), gradient_);
  for (const State& state : std::span(states_).subspan(1)) graph_.update(state.flat, joined(state.next));
}

}  // namespace linnet

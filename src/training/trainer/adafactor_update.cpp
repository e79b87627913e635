#include "training/trainer/adafactor_update.h"

#include <array>

#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "training/trainer/update_expressions.h"

namespace linnet {
namespace {

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
    if (piece.is_matrix)
      factor_sizes.insert(factor_sizes.end(), {piece.rows, piece.columns});
    else
      other_sizes.push_back(piece.count);
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

}  // namespace linnet

#include "training/trainer/muon_update.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/plan/state_names.h"
#include "training/trainer/update_expressions.h"

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

}  // namespace linnet

#include "training/trainer/update_expressions.h"

#include <array>

#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {

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

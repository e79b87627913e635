// What updates that are composed of ops have in common: states cut into pieces, and the elementwise parts.
#pragma once
#include <span>
#include <vector>

#include "engine/ops/pointwise/expression_builder.h"
#include "training/trainer/range_pieces.h"
#include "training/trainer/range_update.h"

namespace linnet {

std::vector<Tensor> cut_pieces(const Tensor& flat, const std::vector<RangePiece>& pieces);
Tensor joined(std::span<const Tensor> pieces);

// from + (to - from) * share.
ExpressionBuilder::Ref moved_towards(ExpressionBuilder& e, ExpressionBuilder::Ref from, ExpressionBuilder::Ref to,
                                     ExpressionBuilder::Ref share);
// parameters * (1 - rate * decay) - rate * length * direction, all of the same shape; the parameters as they are where
// the step is not finite. `rate` [] is the learning rate.
Tensor stepped(const Tensor& parameters, const Tensor& direction, const Tensor& rate, const UpdateFactors& factors,
               double length, double decay);
Tensor averaged(const Tensor& average, const Tensor& parameters, const UpdateFactors& factors);

// The flat states of a range, whose pieces are updated one after another.
class RangeStates {
 public:
  // The first state is the parameters; `names` and, if asked for, "ema" are inputs of the graph.
  RangeStates(Graph& graph, const TrainedRange& range, const RangeGradient& gradient, std::vector<const char*> names,
              bool has_average);
  void cut(const std::vector<RangePiece>& pieces);
  Tensor old(size_t state, size_t piece) const { return states_[state].old[piece]; }
  Tensor old_average(size_t piece) const { return has_average_ ? states_.back().old[piece] : Tensor{}; }
  // Of the next piece.
  void set(size_t state, const Tensor& next) { states_[state].next.push_back(next); }
  void set_average(const Tensor& next) {
    if (has_average_) states_.back().next.push_back(next);
  }
  void update();  // once all pieces are set

 private:
  struct State {
    Tensor flat;
    std::vector<Tensor> old = {}, next = {};
  };
  Graph& graph_;
  const RangeGradient& gradient_;
  const bool has_average_;
  std::vector<State> states_;  // the average is the last
};

}  // namespace linnet

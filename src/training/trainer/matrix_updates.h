// Muon (Jordan et al. 2024): a matrix moves along the nearest semi-orthogonal matrix to its momentum, so that all
// directions of the step are equally long.
//
//   g = gradient * scale,   m += (1 - momentum) (g - m),   u = (1 - momentum) g + momentum m          (Nesterov)
//   x = u / |u|;  five times:  a = x x^T,  x = 3.4445 x + (-4.7750 a + 2.0315 a^2) x
//   parameter = parameter * (1 - rate * weight_decay) - rate * 0.2 sqrt(max(rows, columns)) x
//
// The factor makes the step as long as AdamW's in large models, so that it takes AdamW's learning rate and weight decay
// there (Liu et al. 2025, "Muon is Scalable for LLM Training"); small models want three to four times the rate. What is
// no matrix of a layer (training/trainer/range_update.h) is updated by AdamW.
//
// States: "moment1", the momentum of matrices and AdamW's first moment of the rest; "moment2.rest", the second moment
// of the rest, without the matrices between.
#pragma once
#include <span>
#include <vector>
#include "engine/ops/pointwise/expression_builder.h"
#include "training/trainer/range_update.h"

namespace linnet {

// x [rows, columns], scaled to about the nearest semi-orthogonal matrix: singular values between 0.7 and 1.2.
Tensor orthogonal(At x);

void update_by_muon(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                    const OptimizerAttrs& attrs, const RangeGradient& gradient);

// Adafactor without a first moment (Shazeer & Stern 2018, algorithms 4 and 5), each tensor by itself:
//
//   g = gradient * scale,   fresh = step^-decay_power
//   matrices [N, M]:  r += fresh (mean over columns of (g^2 + 1e-30) - r),   c += fresh (mean over rows - c)
//                     v = r c / mean(r)
//   others:           v += fresh (g^2 + 1e-30 - v)
//   u = g / sqrt(v),   u = u / max(1, root mean square of u)
//   parameter = parameter * (1 - rate * weight_decay) - rate * u
//
// The rate is the learning rate itself, as AdamW's is; the paper's factor, the root mean square of the parameter, is
// left out.
//
// States: "moment2.factors", r and c of all matrices in their order; "moment2.rest", v of the others.

// Elements of "moment2.factors".
int64_t factor_elements(const std::vector<RangePiece>& pieces);

void update_by_adafactor(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                         const OptimizerAttrs& attrs, const RangeGradient& gradient);

// What updates that are composed of ops have in common: states cut into pieces, and the elementwise parts.

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

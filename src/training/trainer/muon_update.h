// Muon (Jordan et al. 2024): a matrix moves along the nearest semi-orthogonal matrix to its momentum, so that all
// directions of the step are equally long.
//
//   g = gradient * scale,   m += (1 - momentum) (g - m),   u = (1 - momentum) g + momentum m          (Nesterov)
//   x = u / |u|;  five times:  a = x x^T,  x = 3.4445 x + (-4.7750 a + 2.0315 a^2) x
//   parameter = parameter * (1 - rate * weight_decay) - rate * 0.2 sqrt(max(rows, columns)) x
//
// The factor makes the step as long as AdamW's in large models, so that it takes AdamW's learning rate and weight decay
// there (Liu et al. 2025, "Muon is Scalable for LLM Training"); small models want three to four times the rate. What is
// no matrix of a layer (training/trainer/range_pieces.h) is updated by AdamW.
//
// States: "moment1", the momentum of matrices and AdamW's first moment of the rest; "moment2.rest", the second moment
// of the rest, without the matrices between.
#pragma once
#include "training/trainer/range_pieces.h"
#include "training/trainer/range_update.h"

namespace linnet {

// x [rows, columns], scaled to about the nearest semi-orthogonal matrix: singular values between 0.7 and 1.2.
Tensor orthogonal(At x);

void update_by_muon(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                    const OptimizerAttrs& attrs, const RangeGradient& gradient);

}  // namespace linnet

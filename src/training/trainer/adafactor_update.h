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
#pragma once
#include "training/trainer/range_pieces.h"
#include "training/trainer/range_update.h"

namespace linnet {

// Elements of "moment2.factors".
int64_t factor_elements(const std::vector<RangePiece>& pieces);

void update_by_adafactor(Graph& graph, const std::vector<RangePiece>& pieces, const TrainedRange& range,
                         const OptimizerAttrs& attrs, const RangeGradient& gradient);

}  // namespace linnet

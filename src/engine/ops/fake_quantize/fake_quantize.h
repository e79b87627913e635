// What static int8 makes of activations and weights, in floats: for training with the rounding errors that the model
// will have later.
//
//   fake_quantize(x, step) = s * clamp(round(x / s), -127, 127), ties to even, s = step[0]; step: [1]
//   round_weight(w)        = each row as WeightFormat::kInt8 rounds it (engine/kernels/quantized/packed_weight.h)
//
// The values are exactly those that products with static_rounding(s) and packed weights compute with. Rounding has no
// useful derivative; its gradient is passed straight through:
//
//   dx = dy where |x / s| <= 127, else 0
//   ds = sum of dy * (round(x / s) - x / s where |x / s| <= 127, else 127 or -127) / sqrt(127 * x.dim(-1))
//   dw = dy
//
// ds is that of learned step size quantization (Esser et al. 2020, arXiv 1902.08153, equations 2 to 4). A step below
// kLeastStep counts as kLeastStep. CPU only.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

constexpr float kLeastStep = 1e-8F;

extern const OpDef kFakeQuantize, kFakeQuantizeGrad, kRoundWeight;

Tensor fake_quantize(At x, Tensor step);
// w: [rows, columns].
Tensor round_weight(At w);

}  // namespace linnet

// Simulates static int8 of activations and weights in floats, to train with the rounding errors of the later model.
//
//   fake_quantize(x, step) = s * clamp(round(x / s), -127, 127), ties to even, s = step[0]; step: [1]
//   round_weight(w)        = each row as WeightFormat::kInt8 rounds it (engine/kernels/quantized/packed_weight.h)
//
// The values equal those of products with static_rounding(s) and packed weights. Rounding has no useful derivative; its
// gradient is passed straight through:
//
//   dx = dy where |x / s| <= 127, else 0
//   ds = sum of dy * (round(x / s) - x / s where |x / s| <= 127, else 127 or -127) / sqrt(127 * x.dim(-1))
//   dw = dy
//
// ds is that of learned step size quantization (Esser et al. 2020, arXiv 1902.08153, equations 2 to 4). A step below
// kLeastStep counts as kLeastStep. CPU only.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
constexpr float kLeastStep = 1e-8F;

extern const OpDef kFakeQuantize, kFakeQuantizeGrad, kRoundWeight;

Tensor fake_quantize(At x, Tensor step);
Tensor round_weight(At w);  // w: [rows, columns]
}  // namespace linnet

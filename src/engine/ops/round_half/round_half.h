// Rounds each element to fp16, beyond 65504 to infinity; y has x's type. The pass lower_precision puts it before the
// operands of products.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
extern const OpDef kRoundHalf;

Tensor round_half(At x);
}  // namespace linnet

// The index of the largest element of each row, the first of several: a classifier's prediction. NaN counts as largest.
//
// x [..., D] -> i32 [...]. There is no gradient.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

extern const OpDef kArgmax;

Tensor argmax_last(At x);

}  // namespace linnet

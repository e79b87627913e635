// The largest element of each row, and the order of all. NaN counts as largest. There is no gradient.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct ArgsortAttrs {
  bool descending = false, flat = false;
  void fields(FieldVisitor& visit) { visit("descending", descending), visit("flat", flat); }
};

extern const OpDef kArgmax, kArgsort;

// x [..., D] -> i32 [...]: the index of the largest element of each row, the first of several: a classifier's
// prediction.
Tensor argmax_last(At x);

// x [..., D], of at most 2^31 - 1 elements -> i32 [..., D]: y[..., k] is the place in the row of the element that comes
// k-th. Equal elements keep their order. With `flat` places are counted from the first element of x, so that they pick
// from x as one row.
Tensor argsort_last(At x, bool descending = false, bool flat = false);

}  // namespace linnet

// The largest element of each row, and the order of all. NaN counts as largest. No gradient.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct ArgsortAttrs {
  bool descending = false, flat = false;
  void fields(FieldVisitor& visit) { visit("descending", descending), visit("flat", flat); }
};

extern const OpDef kArgmax, kArgsort;

// x [..., D] -> i32 [...]: the index of each row's first largest element, a classifier's prediction.
Tensor argmax_last(At x);

// x [..., D], at most 2^31 - 1 elements -> i32 [..., D]: y[..., k] is the index in the row of the k-th element. Equal
// elements keep their order. With `flat` indices count from the first element of x, to pick from x as one row.
Tensor argsort_last(At x, bool descending = false, bool flat = false);
}  // namespace linnet

// The order of each row's elements: y[..., k] is the place in the row of the element that comes k-th. Equal elements
// keep their order; NaN counts as largest.
//
// x [..., D] -> i32 [..., D]. With `flat` places are counted from the first element of x, so that they pick from x as
// one row. There is no gradient.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct ArgsortAttrs {
  bool descending = false, flat = false;
  void fields(FieldVisitor& visit) { visit("descending", descending), visit("flat", flat); }
};

extern const OpDef kArgsort;

// Of at most 2^31 - 1 elements.
Tensor argsort_last(At x, bool descending = false, bool flat = false);

}  // namespace linnet

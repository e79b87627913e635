// Running sums along an axis: element i of the result is the sum of elements 0 ... i, or with `reverse` of i ... n - 1.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct CumsumAttrs {
  int axis = 0;  // from the start
  bool reverse = false;
  void fields(FieldVisitor& visit) { visit("axis", axis), visit("reverse", reverse); }
};

extern const OpDef kCumsum;

// The axis may be negative, counted from the end.
Tensor cumsum(At x, int axis, bool reverse = false);

}  // namespace linnet

// Products in which each row chooses one of several weights, such as a mixture's experts.
//
//   y[m] = x[m mod R] W[choice[m]]^T,   or without the transposition
//  x [R, K], weights [G N, K] (G matrices [N, K], one below the other), choice i32 [M] in [0, G), M a multiple of R:
// rows of x are read M / R times -> y [M, N]. Not transposed: x [R, N] -> y [M, K]. Unchosen weights cost nothing.
#pragma once
#include "engine/ir/graph.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct GroupedMatmulAttrs {
  int64_t groups = 1;
  bool transposed = true;
  bool exact = false;  // in fp32 whatever the precision of others is, as are its gradients
  Precision precision = Precision::kF32;
  bool independent_rows = false;  // see GemmArgs
  bool accumulate = false;        // of the gradient: to what its last operand holds
  void fields(FieldVisitor& visit) {
    visit("groups", groups), visit("transposed", transposed), visit("exact", exact), visit("precision", precision);
    visit("independent_rows", independent_rows), visit("accumulate", accumulate);
  }
};

extern const OpDef kGroupedMatmul;  // x, weights, choice -> y
// a [Ra, N], b [Rb, K], choice [M], [accumulator] -> for each weight the sum of a[m mod Ra]^T b[m mod Rb] over the rows
// that choose it: [G N, K]
extern const OpDef kGroupedMatmulGrad;

Tensor grouped_matmul(At x, Tensor weights, Tensor choice, const GroupedMatmulAttrs& attrs);
}  // namespace linnet

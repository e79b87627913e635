// Token cross-entropy with label smoothing (Szegedy et al. 2016), summed; a row whose target is negative is left out.
//
//   loss of a row = lse(x) - (1 - s) * x[target] - s * mean(x),   lse(x) = log sum exp x
//
// logits [..., V], targets i32 [...] -> sum of losses [], lse [rows]. The mean is the caller's: the sum is divided by a
// count of tokens, which gradient accumulation adds up over micro-steps first.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

struct CrossEntropyAttrs {
  double label_smoothing = 0;
  void fields(FieldVisitor& visit) { visit("label_smoothing", label_smoothing); }
};

struct CountAttrs {
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("dtype", dtype); }
};

struct OneHotAttrs {
  int64_t classes = 0;
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("classes", classes), visit("dtype", dtype); }
};

extern const OpDef kCrossEntropy, kCrossEntropyGrad, kMaskTargets, kCountTargets, kOneHot;

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing = 0);

// targets i32 [B, T], lengths i32 [B]: -1 at and past each length. Padding is known by lengths, never by a token's
// value.
Tensor mask_targets(At targets, Tensor lengths);

// targets i32 [...] -> [..., classes] of type `dtype`: 1 at the target, 0 elsewhere; a row of zeros for a negative one.
Tensor one_hot(At targets, int64_t classes, DType dtype);

// How many targets are not negative, as a scalar of type `dtype`.
Tensor count_targets(At targets, DType dtype);

// Of kernels on the CPU: user error when a target is at or beyond the classes.
void check_targets(const TensorView& targets, int64_t classes);

}  // namespace linnet

// Summed token cross-entropy with label smoothing (Szegedy et al. 2016); a row with a negative target is ignored.
//
//   loss of a row = lse(x) - (1 - s) * x[target] - s * mean(x),   lse(x) = log sum exp x
//
// logits [..., V], targets i32 [...] -> sum of losses [], lse [rows]. The caller divides the sum by a count of tokens,
// which gradient accumulation first adds up over micro-steps.
#pragma once
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

// targets i32 [B, T], lengths i32 [B]: -1 from each length on. Lengths, never a token's value, define padding.
Tensor mask_targets(At targets, Tensor lengths);

// targets i32 [...] -> [..., classes] of type `dtype`: 1 at the target, 0 elsewhere; zeros for a negative target.
Tensor one_hot(At targets, int64_t classes, DType dtype);

// The number of targets that are not negative, as a scalar of type `dtype`.
Tensor count_targets(At targets, DType dtype);

// CPU only: user error for a target at or beyond the classes.
void check_targets(const TensorView& targets, int64_t classes);
}  // namespace linnet

// Reductions to a smaller shape: the mirror of broadcasting.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

enum class Reduction { kSum, kMax, kLogSumExp };
std::span<const char* const> enum_names(Reduction);

struct ReduceAttrs {
  Reduction kind = Reduction::kSum;
  Shape shape;  // a scalar, a suffix (leading axes reduced) or a prefix (trailing axes reduced) of the operand's shape
  void fields(FieldVisitor& visit) { visit("kind", kind), visit("shape", shape); }
};

extern const OpDef kReduce;

// The gradient of a broadcast; x itself when the shape is already right.
Tensor sum_to(At x, Shape shape);
Tensor max_last(At x);          // [..., N] -> [..., 1]; a constant to the gradient
Tensor log_sum_exp_last(At x);  // [..., N] -> [..., 1]

}  // namespace linnet

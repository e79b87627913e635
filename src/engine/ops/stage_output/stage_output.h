// The end of a pipeline stage's forward pass (engine/passes/tensor_parallel.h): a scalar that stands for the loss, of
// which the stage knows only what the next one tells it. Operands are the values that go to the next stage and, for
// each of them, its gradient, which comes from there:
//
//   forward:   0
//   backward:  d(value[i]) = gradient[i]
//
// A gradient that comes from the next stage has the loss's scale in it, so that of the result is not read.
#pragma once
#include <span>
#include "engine/ops/kernel.h"

namespace linnet {

extern const OpDef kStageOutput;

// gradients[i] has the type of values[i]; there is at least one. Result: fp32 [].
Tensor stage_output(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    SourceLine where = SourceLine::current());

}  // namespace linnet

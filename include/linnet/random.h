// Random numbers in the graph: drawn anew in each step from the learner's seed and the step, so that a resumed program
// draws the same ones. In evaluation they follow from the seed, the steps so far and the number of the batch.
#pragma once
#include "linnet/tensor.h"

namespace linnet {
// f32 numbers, uniform in [low, high). No gradient flows through them. Throws Error(kUser) outside of a recording.
Tensor random_uniform(const Shape& shape, double low = 0, double high = 1, SourceLine where = SourceLine::current());
// f32 numbers from N(0, 1). No gradient flows through them. Throws Error(kUser) outside of a recording.
Tensor random_normal(const Shape& shape, SourceLine where = SourceLine::current());
}  // namespace linnet

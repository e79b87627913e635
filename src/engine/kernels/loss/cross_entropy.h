// Cross-entropy of logits against class numbers, with label smoothing (Szegedy et al. 2016). Logits and their gradient
// may each be fp32 or bf16 in memory; the arithmetic is fp32.
#pragma once
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// For every row of logits x [rows, classes] with target t:
//   lse = log(sum exp(x)),   loss = lse - (1 - smoothing) * x[t] - smoothing * mean(x)
// A negative target ignores the row: its loss and lse are 0. losses and lse are [rows]. Targets below `classes` are the
// caller's duty.
void cross_entropy_forward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
                           float* losses, float* lse, ThreadPool& pool);

// dlogits[i, j] = dloss * (exp(x[i, j] - lse[i]) - (1 - smoothing) * [j == t] - smoothing / classes), zeros in ignored
// rows; dloss is the gradient of every row's loss. dlogits may be logits if both have one type.
void cross_entropy_backward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
                            const float* lse, float dloss, MutableStoredFloats dlogits, ThreadPool& pool);

}  // namespace linnet

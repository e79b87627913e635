// Dropout over dense tensors, with the masks of engine/kernels/random/philox.h.
#pragma once
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
// y = kept ? x * dropout_scale(p) : 0 for x [samples, elements_per_sample]; y may be x if both have one type. Element i
// of sample s is kept if value i % 8 of Philox block {i / 8, kDenseDropout, 0, first_sample + s} reaches
// dropout_threshold(p). A dropped NaN is 0, a kept one stays. The gradient is the same function of dy.
void dropout(int64_t samples, int64_t elements_per_sample, StoredFloats x, MutableStoredFloats y, float p, uint64_t key,
    ThreadPool& pool, uint32_t first_sample = 0);

// The same for x [samples, rows, count], columns [first, first + count) of a tensor with `all` of them, with that
// tensor's mask. `all` and `first` are multiples of 8.
struct DropoutColumns {
  int64_t all, first, count;
};
void dropout_of_columns(int64_t samples, int64_t elements_per_sample, const DropoutColumns& columns, StoredFloats x,
    MutableStoredFloats y, float p, uint64_t key, ThreadPool& pool);
}  // namespace linnet

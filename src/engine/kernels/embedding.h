// Table lookup, and its gradient.
#pragma once
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
// out[i, :] = table[ids[i], :] for i < count; table [vocabulary, width]. Here and below the caller checks ids' range.
void gather_rows(
    int64_t count, int64_t width, const float* table, const int32_t* ids, MutableStoredFloats out, ThreadPool& pool);

// dtable[ids[i], :] += dy[i, :] in the order of i: for any number of threads. The id `skipped` adds nothing.
void scatter_add_rows(int64_t count, int64_t width, StoredFloats dy, const int32_t* ids, float* dtable,
    ThreadPool& pool, int32_t skipped = -1);
}  // namespace linnet

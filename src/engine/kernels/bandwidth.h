// How fast this machine reads memory: the bound of everything that is not a large product.
#pragma once
#include <cstddef>

namespace linnet {

class ThreadPool;

// Bytes per second that all threads of the pool read together from a block of `bytes`, which should be far more than
// the caches hold: the best of several passes.
double measured_bandwidth(ThreadPool& pool, size_t bytes);

}  // namespace linnet

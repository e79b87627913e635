// How fast this machine multiplies and adds, the bound of every matrix product, and reads memory, the other bound.
#pragma once
#include <cstddef>
#include "engine/kernels/precision.h"

namespace linnet {
class ThreadPool;

// GFLOP/s of multiply-adds in registers (no memory), all threads of the pool at once, on the current instruction set:
// the best of several runs, 0.2 s in all. bf16 is measured in fp32 without gemm_has_bf16().
double measured_peak_gflops(Precision precision, ThreadPool& pool);

// Bytes per second that all threads of the pool read together from a block of `bytes`, which should far exceed the
// caches: the best of several passes.
double measured_bandwidth(ThreadPool& pool, size_t bytes);
}  // namespace linnet

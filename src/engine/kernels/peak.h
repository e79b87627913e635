// How fast this machine multiplies and adds: the bound of every matrix product.
#pragma once
#include "engine/kernels/precision.h"

namespace linnet {

class ThreadPool;

// GFLOP/s of multiply-adds on registers alone (no memory), all threads of the pool at once, on the current instruction
// set: the best of several runs, 0.2 s in all. bf16 is measured in fp32 where gemm_has_bf16() is false.
double measured_peak_gflops(Precision precision, ThreadPool& pool);

}  // namespace linnet

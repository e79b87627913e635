// The processor: the instruction set of the kernels, and how fast it is.
#pragma once
#include <cstddef>
#include <string>
#include <vector>
#include "engine/kernels/precision.h"

namespace linnet {
class ThreadPool;

// All instruction sets are compiled into the library; the best one of the processor is used unless
// one is forced (to reproduce another machine's bits, or to test).
//
// Those of this processor, best first: "avx512", "avx2", "sse4" (or "neon", ...).
std::vector<std::string> available_isas();

std::string current_isa();

// "auto" is the best one, "baseline" the least. Unknown or unsupported names are a user error that lists the choices.
// Not while a kernel runs.
void force_isa(const std::string& name);

// GFLOP/s of multiply-adds in registers (no memory), all threads of the pool at once, on the current instruction set:
// the best of several runs, 0.2 s in all. bf16 is measured in fp32 without gemm_has_bf16().
double measured_peak_gflops(Precision precision, ThreadPool& pool);

// Bytes per second that all threads of the pool read together from a block of `bytes`, which should far exceed the
// caches: the best of several passes.
double measured_bandwidth(ThreadPool& pool, size_t bytes);
}  // namespace linnet

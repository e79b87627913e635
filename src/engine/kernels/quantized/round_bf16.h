// Stochastic rounding to bf16: of the two neighbors of a number, the nearer one is likelier, such that the expectation
// is the number itself. Updates that are smaller than half of the distance between neighbors, which rounding to nearest
// loses, move a weight now and then instead.
#pragma once
#include <cstdint>

namespace linnet {

class ThreadPool;

// y[i] = the upper half of the bits of x[i] + r, where r in [0, 65536) is the 16-bit value i of the row {kBf16Rounding,
// 0, 0} under `key` (engine/kernels/random/philox.h). Numbers of bf16, infinity and NaN stay what they are. The bits
// are the same for every instruction set and number of threads. x and y do not overlap.
void round_to_bf16_stochastic(int64_t count, const float* x, uint16_t* y, uint64_t key, ThreadPool& pool);

constexpr uint32_t kBf16Rounding = 0xBF16;

// The same for one number and a value r, for references.
uint16_t round_to_bf16_by(float x, uint16_t r);

}  // namespace linnet

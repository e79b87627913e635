#include "engine/kernels/cuda/launch.cuh"
#include "engine/ops/collective/collective.h"

namespace linnet {
namespace {
constexpr int kThreads = 256;
constexpr int64_t kEach = 4;  // values that a thread adds

__global__ void __launch_bounds__(kThreads) add_values_kernel(int64_t count, float* into, const float* from) {
  begin_kernel();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
  for (int64_t i = 0; i < kEach; ++i)
    if (const int64_t at = first + i * kThreads; at < count) into[at] = __fadd_rn(into[at], from[at]);
}
}  // namespace

void add_values_cuda(Device* device, float* into, const float* from, int64_t count) {
  launch(device, add_values_kernel, blocks_for(count, kThreads * kEach), kThreads, 0, count, into, from);
}
}  // namespace linnet

// The emulation finds what it is there to find.
#include <gtest/gtest.h>
#include <cstring>
#include "base/error.h"
#include "cuda_emulation/emulated_backend.h"
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {
namespace {
Device& device() { return *emulated_backend().backend.device; }

class Memory {
 public:
  explicit Memory(size_t floats) : memory_(device().allocate(4 * floats, "test")) {}
  ~Memory() { device().release(memory_); }
  Memory(const Memory&) = delete;
  float* floats() { return reinterpret_cast<float*>(memory_); }
  float first() {
    float value = 0;
    device().download(reinterpret_cast<std::byte*>(&value), memory_, 4);
    device().wait();
    return value;
  }

 private:
  std::byte* memory_;
};

std::string message_of(void (*kernel)(float*)) {
  Memory memory(64);
  launch(&device(), kernel, 1, 64, 0, memory.floats());
  try {
    device().wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

__global__ void asks_a_lane_that_has_ended(float* to) {
  begin_kernel();
  if (threadIdx.x % 32 == 31) return;
  to[threadIdx.x] = __shfl_sync(kAllLanes, 1.0f, 31);
}
__global__ void meets_at_different_lines(float* to) {
  begin_kernel();
  if (threadIdx.x < 8) to[threadIdx.x] = __shfl_sync(kAllLanes, 1.0f, 0);
  else to[threadIdx.x] = __shfl_sync(kAllLanes, 2.0f, 0);
}
__global__ void waits_in_a_branch(float* to) {
  begin_kernel();
  if (threadIdx.x < 32) __syncthreads();
  to[threadIdx.x] = 1;
  if (threadIdx.x >= 32) __syncthreads();
}
__global__ void does_not_begin(float* to) { to[threadIdx.x] = 1; }
__global__ void is_right(float* to) {
  begin_kernel();
  const float sum = __shfl_xor_sync(kAllLanes, 1.0f, 16);
  __syncthreads();
  to[threadIdx.x] = sum;
}
__global__ void reads_what_nothing_wrote(float* to) {
  begin_kernel();
  __shared__ float shared[4];
  if (threadIdx.x == 0) to[0] = shared[1];
  __syncthreads();
  if (threadIdx.x < 4) shared[threadIdx.x] = 5;
}

TEST(Emulation, SaysWhatAGpuWouldNot) {
  EXPECT_NE(message_of(asks_a_lane_that_has_ended).find("lane 31, which has ended"), std::string::npos);
  EXPECT_NE(
      message_of(meets_at_different_lines).find("threads of one warp wait at different lines"), std::string::npos);
  EXPECT_NE(message_of(waits_in_a_branch).find("threads of one block wait at different lines"), std::string::npos);
  EXPECT_NE(message_of(does_not_begin).find("without begin_kernel()"), std::string::npos);
  EXPECT_EQ(message_of(is_right), "none");
}

TEST(Emulation, MemoryBeginsAsNaNForEveryBlock) {
  Memory memory(2);
  EXPECT_TRUE(std::isnan(memory.first()));
  for (int run = 0; run < 2; ++run) {
    launch(&device(), reads_what_nothing_wrote, 1, 64, 0, memory.floats());
    EXPECT_TRUE(std::isnan(memory.first()));
  }
}
}  // namespace
}  // namespace linnet

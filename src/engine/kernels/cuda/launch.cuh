// Included by every CUDA kernel of Linnet. Kernels use a small part of CUDA (indices, shared memory, barriers, warp
// shuffles) and are started by launch(), so that the same source also runs on the CPU, thread by thread
// (tests/cuda_emulation, with LINNET_CUDA_EMULATION), which tests arithmetic, bounds and barriers without a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/device/device.h"

#ifdef LINNET_CUDA_EMULATION
#include "cuda_emulation/emulation.cuh"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <limits>
#include <tuple>
#include "engine/device/cuda/cuda_device.h"

#define LINNET_DEVICE __device__ __forceinline__

namespace linnet {
// The first line of every kernel (CUDA programming guide, "Programmatic dependent launch"): waits until earlier kernels
// have ended, then lets the next one start, which waits at its own first line.
LINNET_DEVICE void begin_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The lowest compiled architecture in which begin_kernel() waits, as 90.
constexpr int least_waiting_architecture() {
  int least = std::numeric_limits<int>::max();
  for (const int architecture : {__CUDA_ARCH_LIST__})
    if (architecture >= 900 && architecture / 10 < least) least = architecture / 10;
  return least;
}

template <class... Params, class... Args>  // `shared`: bytes of dynamic_shared()
void launch(Device* device, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared > 48 * 1024)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        "asking for shared memory");
  std::tuple<Params...> values(static_cast<Params>(args)...);
  std::apply(
      [&](Params&... value) {
        void* pointers[] = {&value...};
        static_cast<CudaDevice*>(device)->launch(
            reinterpret_cast<const void*>(kernel), grid, block, shared, pointers, least_waiting_architecture());
      },
      values);
}

template <class T> LINNET_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char linnet_dynamic_shared[];
  return reinterpret_cast<T*>(linnet_dynamic_shared);
}
}  // namespace linnet
#endif

namespace linnet {
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

constexpr int kElementThreads = 256;

// Calls kFunction(i, ...) for every i below `count`, in a thread each.
template <auto kFunction, class... Params> __global__ void __launch_bounds__(kElementThreads)
    elements_kernel(int64_t count, Params... params) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i < count) kFunction(i, params...);
}

template <auto kFunction, class... Params, class... Args>
void launch_elements_of(void (*)(int64_t, Params...), Device* device, int64_t count, Args... args) {
  launch(device, elements_kernel<kFunction, Params...>, blocks_for(count, kElementThreads), kElementThreads, 0, count,
      args...);
}

// kFunction: LINNET_DEVICE void(int64_t i, ...).
template <auto kFunction, class... Args> void launch_elements(Device* device, int64_t count, Args... args) {
  launch_elements_of<kFunction>(kFunction, device, count, args...);
}

struct Divided {
  int64_t quotient, remainder;
};

// For numbers that are not negative. A GPU divides 64 bits in some hundred instructions and 32 in twenty, and most
// tensors have fewer than 2^32 elements.
LINNET_DEVICE Divided divided(int64_t i, int64_t by) {
  int64_t quotient;
  if (((i | by) >> 32) == 0) quotient = static_cast<unsigned>(i) / static_cast<unsigned>(by);
  else quotient = i / by;
  return {quotient, i - quotient * by};
}
}  // namespace linnet

// What every CUDA kernel of Linnet includes. Kernels are written in a small part of CUDA - indices, shared memory,
// barriers, warp shuffles - and are started by launch(), so that the same source also runs on the CPU, thread by thread
// (tests/cuda_emulation, with LINNET_CUDA_EMULATION): their arithmetic, bounds and barriers are tested where there is no GPU.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/device/device.h"

#ifdef LINNET_CUDA_EMULATION
#include "cuda_emulation/emulation.cuh"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_device.h"

#define LINNET_DEVICE __device__ __forceinline__

namespace linnet {

// `shared`: bytes of dynamic shared memory, see dynamic_shared().
template <class... Params, class... Args>
void launch(Device* device, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const cudaStream_t stream = static_cast<CudaDevice*>(device)->stream();
  if (shared > 48 * 1024)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "asking for shared memory");
  kernel<<<grid, block, shared, stream>>>(static_cast<Params>(args)...);
}

template <class T>
LINNET_DEVICE T* dynamic_shared() {
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

}  // namespace linnet

// Sums and maxima over a warp or a block, in a fixed order, so that every run gives the same bits.
#pragma once
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {
struct Add {
  template <class T> LINNET_DEVICE T operator()(T a, T b) const { return a + b; }
};
// NaN wins, so that it reaches the loss.
struct Larger {
  LINNET_DEVICE float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Every lane gets the result. All 32 lanes must take part.
template <class T, class Op> LINNET_DEVICE T warp_reduce(T value, Op op) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// Every thread of the block gets the result. The block has a multiple of 32 threads along x, at most 1024; all must
// call it together. May be called again at once.
template <class T, class Op> static LINNET_DEVICE T block_reduce(T value, Op op, T identity) {
  __shared__ T parts[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  value = warp_reduce(value, op);
  if (blockDim.x == kWarp) return value;
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / kWarp ? parts[lane] : identity;
  value = warp_reduce(value, op);
  __syncthreads();
  return value;
}
template <class T> LINNET_DEVICE T block_sum(T value) { return block_reduce(value, Add(), T(0)); }
LINNET_DEVICE float block_max(float value) { return block_reduce(value, Larger(), -INFINITY); }
}  // namespace linnet

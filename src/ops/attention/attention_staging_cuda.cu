#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/storage.cuh"
#include "ops/attention/attention_staging_cuda.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) prepare_kernel(AttentionExtras e) {
  for (int64_t b = threadIdx.x; b < e.batch; b += kThreads) {
    if (e.query_lengths) e.query_lengths[b] = e.queries;
    if (e.key_lengths) e.key_lengths[b] = min(max(e.lengths[b], 0), e.keys);
  }
  if (threadIdx.x != 0 || !e.seed) return;
  e.seed[0] = e.random ? static_cast<int64_t>(dropout_key_on_device(e.random, e.site)) : 0;
  e.seed[1] = 0;
}

struct Strided {
  int64_t length, width, sample, row;
  LINNET_DEVICE int64_t location(int64_t i) const {
    return i / width / length * sample + i / width % length * row + i % width;
  }
};

__global__ void __launch_bounds__(kThreads)
    pack_kernel(int64_t count, Strided at, const float* __restrict__ from, bf16* __restrict__ to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i] = from_float<bf16>(from[at.location(i)]);
}
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(int64_t count, Strided at, const bf16* __restrict__ from, float* __restrict__ to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[at.location(i)] = to_float(from[i]);
}

Strided strided(const TensorView& x) { return {x.shape()[1], x.shape()[2], x.strides[0], x.strides[1]}; }

}  // namespace

void prepare_attention(Device* device, const AttentionExtras& extras) {
  launch(device, prepare_kernel, 1, kThreads, 0, extras);
}

void pack_bf16(Device* device, const TensorView& from, void* to) {
  launch(device, pack_kernel, blocks_for(from.elements(), kThreads), kThreads, 0, from.elements(), strided(from),
         from.as<const float>(), static_cast<bf16*>(to));
}

void unpack_bf16(Device* device, const void* from, const TensorView& to) {
  launch(device, unpack_kernel, blocks_for(to.elements(), kThreads), kThreads, 0, to.elements(), strided(to),
         static_cast<const bf16*>(from), to.as<float>());
}

}  // namespace linnet

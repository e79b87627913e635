// Dropout alone: a thread draws one block of Philox, which serves eight elements.
#include "engine/kernels/cuda/index.cuh"
#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/dropout/dropout.h"

namespace linnet {
namespace {

constexpr int kThreads = 256, kDrawn = 8;

// x [samples, size], `blocks` draws for each sample.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(int64_t samples, int64_t size, int64_t blocks, bool aligned, DropoutSite site, const T* x, T* y) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= samples * blocks) return;
  const DropoutMask mask = site.mask();
  const auto [sample, block] = divided(i, blocks);
  const int64_t begin = sample * size + block * kDrawn;
  const uint4 words = philox({static_cast<unsigned>(block), kDenseDropout, 0, static_cast<unsigned>(sample)}, mask.key);
  const int left = static_cast<int>(min(static_cast<int64_t>(kDrawn), size - block * kDrawn));
#pragma unroll
  for (int part = 0; part < kDrawn; part += 4) {
    float values[4];
    if (aligned) {
      load4(x + begin + part, values);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) values[k] = part + k < left ? to_float(x[begin + part + k]) : 0;
    }
    // Not multiplied by 0: a dropped infinity is 0.
#pragma unroll
    for (int k = 0; k < 4; ++k)
      values[k] = philox_value(words, part + k) >= mask.threshold ? values[k] * mask.scale : 0;
    if (aligned) {
      store4(y + begin + part, values);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (part + k < left) y[begin + part + k] = from_float<T>(values[k]);
    }
  }
}

// Attention's probabilities [B, heads, queries, keys], of attention's decomposition.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(int64_t count, int64_t heads, int64_t queries, int64_t keys, DropoutSite site, const T* x, T* y) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const DropoutMask mask = site.mask();
  const int64_t key = i % keys, query = i / keys % queries, head = i / keys / queries % heads;
  const auto sample = static_cast<unsigned>(i / keys / queries / heads);
  const uint4 words =
      philox({static_cast<unsigned>(key / kDrawn), static_cast<unsigned>(query), static_cast<unsigned>(head), sample},
             mask.key);
  const bool keep = philox_value(words, static_cast<int>(key % kDrawn)) >= mask.threshold;
  y[i] = from_float<T>(keep ? to_float(x[i]) * mask.scale : 0);
}

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<DropoutAttrs>();
  const Shape& shape = args.in[0].shape();
  const int64_t count = shape.elements();
  if (count == 0) return;
  const DropoutSite site = dropout_site_of(args.in[1].as<int32_t>(), attrs.site, attrs.probability);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    T* y = args.out[0].as<T>();
    if (attrs.layout == DropoutLayout::kAttention)
      return launch(args.device, attention_kernel<T>, blocks_for(count, kThreads), kThreads, 0, count, shape[1],
                    shape[2], shape[3], site, x, y);
    const int64_t samples = shape[0], size = count / samples, blocks = (size + kDrawn - 1) / kDrawn;
    const bool aligned = size % kDrawn == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(Four<T>) == 0 &&
                         reinterpret_cast<uintptr_t>(y) % sizeof(Four<T>) == 0;
    launch(args.device, dense_kernel<T>, blocks_for(samples * blocks, kThreads), kThreads, 0, samples, size, blocks,
           aligned, site, x, y);
  });
}

}  // namespace

LINNET_KERNELS(dropout_cuda, {"philox", nullptr, nullptr, run})

}  // namespace linnet

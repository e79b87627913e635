// Dropout alone: a thread draws one block of Philox for eight elements, or makes four uniform numbers of it.
#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/dropout/dropout.h"

namespace linnet {
namespace {
constexpr int kDrawn = 8, kWords = 4;

// Draw i of x [samples, size], `blocks` draws for each sample.
template <class T> LINNET_DEVICE void drop_dense(
    int64_t i, int64_t size, int64_t blocks, bool aligned, DropoutSite site, const T* x, T* y) {
  const DropoutMask mask = site.mask();
  const auto [sample, block] = divided(i, blocks);
  const int64_t begin = sample * size + block * kDrawn;
  const uint4 words = philox({static_cast<unsigned>(block), kDenseDropout, 0, static_cast<unsigned>(sample)}, mask.key);
  const int left = static_cast<int>(min(static_cast<int64_t>(kDrawn), size - block * kDrawn));
#pragma unroll
  for (int part = 0; part < kDrawn; part += 4) {
    float values[4];
    load_up_to_4(x + begin + part, left - part, aligned, values);
    // Not multiplied by 0: a dropped infinity is 0.
#pragma unroll
    for (int k = 0; k < 4; ++k)
      values[k] = philox_value(words, part + k) >= mask.threshold ? values[k] * mask.scale : 0;
    store_up_to_4(y + begin + part, left - part, aligned, values);
  }
}

// Attention's probabilities [B, heads, queries, keys], in its decomposition.
template <class T> LINNET_DEVICE void drop_probability(
    int64_t i, int64_t heads, int64_t queries, int64_t keys, DropoutSite site, const T* x, T* y) {
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
  const auto& attrs = args.attrs<DropoutAttrs>();
  const Shape& shape = args.in[0].shape();
  const int64_t count = shape.elements();
  if (count == 0) return;
  const DropoutSite site = dropout_site_of(args.in[1].as<int32_t>(), attrs.site, attrs.probability);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    T* y = args.out[0].as<T>();
    if (attrs.layout == DropoutLayout::kAttention)
      return launch_elements<drop_probability<T>>(args.device, count, shape[1], shape[2], shape[3], site, x, y);
    const int64_t size = count / shape[0], blocks = (size + kDrawn - 1) / kDrawn;
    const bool aligned = size % kDrawn == 0 && aligned4(x) && aligned4(y);
    launch_elements<drop_dense<T>>(args.device, shape[0] * blocks, size, blocks, aligned, site, x, y);
  });
}

LINNET_DEVICE void draw_uniform(int64_t block, int64_t count, const int32_t* random, uint64_t site, float* to) {
  const uint4 words = philox(
      {static_cast<unsigned>(block), kUniformDraw, static_cast<unsigned>(block >> 32), 0}, dropout_key(random, site));
  const unsigned all[kWords] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    if (block * kWords + i < count)
      to[block * kWords + i] = static_cast<float>(all[i] >> 8) / static_cast<float>(1 << 24);
}

void run_uniform(const KernelArgs& args) {
  const int64_t count = args.out[0].elements();
  launch_elements<draw_uniform>(args.device, (count + kWords - 1) / kWords, count, args.in[0].as<int32_t>(),
      args.attrs<RandomUniformAttrs>().site, args.out[0].as<float>());
}
}  // namespace

LINNET_KERNELS(dropout_cuda, {"philox", run})
LINNET_KERNELS(random_uniform_cuda, {"philox", run_uniform})
}  // namespace linnet

// Uniform numbers: a thread draws one block of Philox, which is four of them.
#include "engine/kernels/cuda/philox.cuh"
#include "engine/ops/random_uniform/random_uniform.h"

namespace linnet {
namespace {

constexpr int kThreads = 256, kWords = 4;

__global__ void __launch_bounds__(kThreads)
    uniform_kernel(int64_t count, const int32_t* random, uint64_t site, float* to) {
  begin_kernel();
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (block * kWords >= count) return;
  const uint4 words = philox({static_cast<unsigned>(block), kUniformDraw, static_cast<unsigned>(block >> 32), 0},
                             dropout_key_on_device(random, site));
  const unsigned all[kWords] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    if (block * kWords + i < count)
      to[block * kWords + i] = static_cast<float>(all[i] >> 8) / static_cast<float>(1 << 24);
}

void run(const KernelArgs& args) {
  const int64_t count = args.out[0].elements();
  if (count == 0) return;
  launch(args.device, uniform_kernel, blocks_for((count + kWords - 1) / kWords, kThreads), kThreads, 0, count,
         args.in[0].as<int32_t>(), args.node.attrs.as<RandomUniformAttrs>().site, args.out[0].as<float>());
}

}  // namespace

LINNET_KERNELS(random_uniform_cuda, {"philox", nullptr, nullptr, run})

}  // namespace linnet

// The largest element's index: a block for each row, over whole numbers that order floats as argmax does.
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/argmax/argmax.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;

struct Later {
  LINNET_DEVICE unsigned long long operator()(unsigned long long a, unsigned long long b) const {
    return a > b ? a : b;
  }
};

// Larger elements have larger keys, NaN the largest; of equal ones (0 and -0 too) the first.
LINNET_DEVICE unsigned long long order_key(float x, int64_t index) {
  const unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
  const unsigned order = x != x ? ~0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(order) << 32 | ~static_cast<unsigned>(index);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(int64_t width, const T* __restrict__ x, int32_t* __restrict__ y) {
  begin_kernel();
  x += blockIdx.x * width;
  unsigned long long best = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) best = Later()(best, order_key(to_float(x[j]), j));
  best = block_reduce(best, Later(), 0ull);
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<int32_t>(~static_cast<unsigned>(best));
}

void run(const KernelArgs& args) {
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, argmax_kernel<T>, static_cast<unsigned>(args.out[0].elements()), kThreads, 0,
           args.in[0].shape()[-1], args.in[0].as<T>(), args.out[0].as<int32_t>());
  });
}

}  // namespace

LINNET_KERNELS(argmax_cuda, {"rows", nullptr, nullptr, run})

}  // namespace linnet

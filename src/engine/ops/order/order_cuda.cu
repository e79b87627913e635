// The index of the largest element: a block for each row, over integers that order floats like argmax. The order of a
// row: a thread for each element counts those before it, D reads each, for rows short enough for the cache.
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/order/order.h"

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

template <class T> __global__ void __launch_bounds__(kThreads)
    argmax_kernel(int64_t width, const T* __restrict__ x, int32_t* __restrict__ y) {
  begin_kernel();
  x += blockIdx.x * width;
  unsigned long long best = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) best = Later()(best, order_key(to_float(x[j]), j));
  best = block_reduce(best, Later(), 0ull);
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<int32_t>(~static_cast<unsigned>(best));
}

LINNET_DEVICE bool is_less(float a, float b) { return b != b ? a == a : a < b; }

template <class T>
LINNET_DEVICE void place_element(int64_t at, int64_t width, bool descending, bool flat, const T* x, int32_t* y) {
  const int64_t first = at / width * width, own = at - first;
  const float value = to_float(x[at]);
  int64_t place = 0;
  for (int64_t j = 0; j < width; ++j) {
    const float other = to_float(x[first + j]);
    const bool before = descending ? is_less(value, other) : is_less(other, value);
    const bool after = descending ? is_less(other, value) : is_less(value, other);
    place += before || (!after && j < own);
  }
  y[first + place] = static_cast<int32_t>(flat ? at : own);
}

void run_argmax(const KernelArgs& args) {
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, argmax_kernel<T>, static_cast<unsigned>(args.out[0].elements()), kThreads, 0,
        args.in[0].shape()[-1], args.in[0].as<T>(), args.out[0].as<int32_t>());
  });
}

void run_argsort(const KernelArgs& args) {
  const auto& attrs = args.attrs<ArgsortAttrs>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<place_element<T>>(args.device, args.out[0].elements(), args.in[0].shape()[-1], attrs.descending,
        attrs.flat, args.in[0].as<T>(), args.out[0].as<int32_t>());
  });
}
}  // namespace

LINNET_KERNELS(argmax_cuda, {"rows", nullptr, nullptr, run_argmax})
LINNET_KERNELS(argsort_cuda, {"counted", nullptr, nullptr, run_argsort})
}  // namespace linnet

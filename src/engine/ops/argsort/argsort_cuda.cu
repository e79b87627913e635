// The order of each row: a thread for each element counts those that come before it, which is its place. D reads for
// each element, of rows that are short enough to lie in the cache.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/argsort/argsort.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;

LINNET_DEVICE bool is_less(float a, float b) { return b != b ? a == a : a < b; }

template <class T>
__global__ void __launch_bounds__(kThreads) argsort_kernel(int64_t elements, int64_t width, bool descending, bool flat,
                                                           const T* __restrict__ x, int32_t* __restrict__ y) {
  begin_kernel();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
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

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ArgsortAttrs>();
  const int64_t elements = args.out[0].elements();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, argsort_kernel<T>, blocks_for(elements, kThreads), kThreads, 0, elements,
           args.in[0].shape()[-1], attrs.descending, attrs.flat, args.in[0].as<T>(), args.out[0].as<int32_t>());
  });
}

}  // namespace

LINNET_KERNELS(argsort_cuda, {"counted", nullptr, nullptr, run})

}  // namespace linnet

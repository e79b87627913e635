#include <cmath>

#include "engine/kernels/parallel.h"
#include "engine/ops/argmax/argmax.h"

namespace linnet {
namespace {

template <class T>
int32_t argmax_row(const T* x, int64_t width) {
  int64_t best = 0;
  for (int64_t j = 0; j < width; ++j) {
    if (std::isnan(x[j])) return static_cast<int32_t>(j);
    if (x[j] > x[best]) best = j;
  }
  return static_cast<int32_t>(best);
}

void run_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1];
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, args.out[0].elements(), width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        args.out[0].as<int32_t>()[row] = argmax_row(args.in[0].as<const T>() + row * width, width);
    });
  });
}

constexpr Kernel kKernels[] = {{"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList argmax_kernels() { return kKernels; }

}  // namespace linnet

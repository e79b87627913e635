// Running sums: a thread for each row of the axis.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/ops/cumsum/cumsum.h"

namespace linnet {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    cumsum_kernel(int64_t rows, int64_t size, int64_t inner, bool reverse, const float* x, float* y) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const int64_t first = row / inner * size * inner + row % inner;
  double sum = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t at = first + (reverse ? size - 1 - k : k) * inner;
    sum += static_cast<double>(x[at]);
    y[at] = static_cast<float>(sum);
  }
}

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<CumsumAttrs>();
  const Shape& shape = args.in[0].shape();
  if (shape.elements() == 0) return;
  const int64_t inner = shape.elements(attrs.axis + 1, shape.rank()), rows = shape.elements(0, attrs.axis) * inner;
  launch(args.device, cumsum_kernel, blocks_for(rows, kThreads), kThreads, 0, rows, shape[attrs.axis], inner,
         attrs.reverse, args.in[0].as<float>(), args.out[0].as<float>());
}

}  // namespace

LINNET_KERNELS(cumsum_cuda, {"rows", nullptr, nullptr, run})

}  // namespace linnet

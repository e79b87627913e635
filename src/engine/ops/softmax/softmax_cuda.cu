// Rows in registers, as in engine/kernels/cuda/rows.cuh; longer ones are read again.
#include "engine/kernels/cuda/rows.cuh"
#include "engine/ops/softmax/softmax.h"

namespace linnet {
namespace {
// A row of only -inf gives zeros; a NaN or +inf anywhere gives NaN everywhere. y may be x.
template <class T, class Layout> __global__ void __launch_bounds__(kRowBlock)
    softmax_kernel(int64_t rows, int width, const T* x, T* y) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + Layout::row_in_block();
  if (row >= rows) return;
  float v[Layout::kPieces][Layout::kVector];
  load_row<Layout>(x + row * width, width, -INFINITY, v);
  float top = -INFINITY;
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (const float value : piece) top = Larger()(value, top);
  top = Layout::max(top);
  const bool empty = top == -INFINITY;
  float sum = 0;
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (float& value : piece) sum += value = empty ? 0 : expf(value - top);
  const float scale = empty ? 0 : 1 / Layout::sum(sum);
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (float& value : piece) value *= scale;
  store_row<Layout>(y + row * width, width, v);
}

template <class T> __global__ void __launch_bounds__(kRowBlock) softmax_long_kernel(int64_t width, const T* x, T* y) {
  begin_kernel();
  x += blockIdx.x * width, y += blockIdx.x * width;
  float top = -INFINITY, sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock) top = Larger()(to_float(x[j]), top);
  top = block_max(top);
  const bool empty = top == -INFINITY;
  if (!empty)
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) sum += expf(to_float(x[j]) - top);
  const float scale = 1 / block_sum(sum);
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock)
    y[j] = from_float<T>(empty ? 0 : expf(to_float(x[j]) - top) * scale);
}

template <class T, class Layout> __global__ void __launch_bounds__(kRowBlock)
    softmax_grad_kernel(int64_t rows, int width, const T* dy, const T* y, T* dx) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + Layout::row_in_block();
  if (row >= rows) return;
  float d[Layout::kPieces][Layout::kVector], p[Layout::kPieces][Layout::kVector];
  load_row<Layout>(dy + row * width, width, 0, d);
  load_row<Layout>(y + row * width, width, 0, p);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) sum += d[i][j] * p[i][j];
  sum = Layout::sum(sum);
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) d[i][j] = p[i][j] * (d[i][j] - sum);
  store_row<Layout>(dx + row * width, width, d);
}

template <class T> __global__ void __launch_bounds__(kRowBlock)
    softmax_grad_long_kernel(int64_t width, const T* dy, const T* y, T* dx) {
  begin_kernel();
  dy += blockIdx.x * width, y += blockIdx.x * width, dx += blockIdx.x * width;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock) sum += to_float(dy[j]) * to_float(y[j]);
  sum = block_sum(sum);
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock)
    dx[j] = from_float<T>(to_float(y[j]) * (to_float(dy[j]) - sum));
}

void run(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    T* y = args.out[0].as<T>();
    if (!for_row_layout<T>(width, aligned16(x, y), [&]<class Layout>() {
          launch(
              args.device, softmax_kernel<T, Layout>, blocks_for(rows, Layout::kRows), kRowBlock, 0, rows, width, x, y);
        }))
      launch(args.device, softmax_long_kernel<T>, static_cast<unsigned>(rows), kRowBlock, 0, width, x, y);
  });
}

void run_grad(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *y = args.in[1].as<T>();
    T* dx = args.out[0].as<T>();
    if (!for_row_layout<T>(width, aligned16(dy, y, dx), [&]<class Layout>() {
          launch(args.device, softmax_grad_kernel<T, Layout>, blocks_for(rows, Layout::kRows), kRowBlock, 0, rows,
              width, dy, y, dx);
        }))
      launch(args.device, softmax_grad_long_kernel<T>, static_cast<unsigned>(rows), kRowBlock, 0, width, dy, y, dx);
  });
}
}  // namespace

LINNET_KERNELS(softmax_cuda, {"rows", run})
LINNET_KERNELS(softmax_grad_cuda, {"rows", run_grad})
}  // namespace linnet

// Batch normalization, a block for each channel: two passes over it for the moments and one for the result.
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/batch_norm/batch_norm.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_kernel(int64_t rows, int64_t channels, float epsilon, const T* x, const float* weight, const float* bias,
                      T* y, float* means, float* variances) {
  begin_kernel();
  const int64_t c = blockIdx.x;
  float sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) sum += to_float(x[r * channels + c]);
  const float mean = block_sum(sum) / static_cast<float>(rows);
  float squares = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
    const float centered = to_float(x[r * channels + c]) - mean;
    squares += centered * centered;
  }
  const float variance = block_sum(squares) / static_cast<float>(rows);
  const float scale = weight[c] * rsqrtf(variance + epsilon);
  for (int64_t r = threadIdx.x; r < rows; r += kThreads)
    y[r * channels + c] = from_float<T>((to_float(x[r * channels + c]) - mean) * scale + bias[c]);
  if (threadIdx.x == 0) means[c] = mean, variances[c] = variance;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_grad_kernel(int64_t rows, int64_t channels, float epsilon, const T* dy, const T* x, const float* weight,
                           const float* means, const float* variances, T* dx, float* dweight, float* dbias) {
  begin_kernel();
  const int64_t c = blockIdx.x;
  const float mean = means[c], rstd = rsqrtf(variances[c] + epsilon);
  float sum = 0, product = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
    const float slope = to_float(dy[r * channels + c]);
    sum += slope;
    product += slope * (to_float(x[r * channels + c]) - mean) * rstd;
  }
  sum = block_sum(sum), product = block_sum(product);
  const float share = 1 / static_cast<float>(rows), scale = weight[c] * rstd;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
    const float normal = (to_float(x[r * channels + c]) - mean) * rstd;
    dx[r * channels + c] = from_float<T>(scale * (to_float(dy[r * channels + c]) - (sum + normal * product) * share));
  }
  if (threadIdx.x == 0) dweight[c] = product, dbias[c] = sum;
}

void run(const KernelArgs& args) {
  const int64_t channels = args.in[0].shape()[-1], rows = args.in[0].elements() / channels;
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, batch_norm_kernel<T>, blocks_for(channels, 1), kThreads, 0, rows, channels,
           static_cast<float>(args.node.attrs.as<BatchNormAttrs>().epsilon), args.in[0].as<T>(), args.in[1].as<float>(),
           args.in[2].as<float>(), args.out[0].as<T>(), args.out[1].as<float>(), args.out[2].as<float>());
  });
}

void run_grad(const KernelArgs& args) {
  const int64_t channels = args.in[1].shape()[-1], rows = args.in[1].elements() / channels;
  for_storage(args.in[1].type.dtype, [&]<class T>() {
    launch(args.device, batch_norm_grad_kernel<T>, blocks_for(channels, 1), kThreads, 0, rows, channels,
           static_cast<float>(args.node.attrs.as<BatchNormAttrs>().epsilon), args.in[0].as<T>(), args.in[1].as<T>(),
           args.in[2].as<float>(), args.in[3].as<float>(), args.in[4].as<float>(), args.out[0].as<T>(),
           args.out[1].as<float>(), args.out[2].as<float>());
  });
}

bool is_plain(const KernelQuery& query) {
  const auto& attrs = query.node.attrs.as<BatchNormAttrs>();
  return !attrs.residual && !attrs.relu;
}

}  // namespace

LINNET_KERNELS(batch_norm_cuda, {"channels", is_plain, nullptr, run})
LINNET_KERNELS(batch_norm_grad_cuda, {"channels", is_plain, nullptr, run_grad})

}  // namespace linnet

// Layer and RMS normalization: a block for each row, which it keeps in registers between its sums and its result.
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/storage.cuh"
#include "ops/cuda_kernels.h"
#include "ops/layer_norm/layer_norm.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;
// Rows that one block of the gradient adds up for dweight and dbias: fixed, so that sums do not depend on the GPU.
constexpr int64_t kRowsPerPart = 64;

template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(int64_t width, const T* __restrict__ x, const float* __restrict__ weight,
                      const float* __restrict__ bias, float epsilon, bool centered, T* __restrict__ y,
                      float* __restrict__ mean_out, float* __restrict__ rstd_out) {
  const int64_t row = blockIdx.x;
  x += row * width, y += row * width;
  float sum = 0;
  if (centered)
    for (int64_t j = threadIdx.x; j < width; j += kThreads) sum += to_float(x[j]);
  const float mean = centered ? block_sum(sum) / static_cast<float>(width) : 0;
  float squares = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const float d = to_float(x[j]) - mean;
    squares += d * d;
  }
  const float rstd = rsqrtf(block_sum(squares) / static_cast<float>(width) + epsilon);
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const float normal = (to_float(x[j]) - mean) * rstd;
    y[j] = from_float<T>(normal * (weight ? weight[j] : 1) + (bias ? bias[j] : 0));
  }
  if (threadIdx.x == 0) mean_out[row] = mean, rstd_out[row] = rstd;
}

// dx = rstd * (g - mean(g) (when centred) - x^ * mean(g * x^)),  g = dy * weight
template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_grad_kernel(int64_t width, const T* __restrict__ dy, const T* __restrict__ x,
                           const float* __restrict__ weight, const float* __restrict__ means,
                           const float* __restrict__ rstds, bool centered, T* __restrict__ dx) {
  const int64_t row = blockIdx.x;
  dy += row * width, x += row * width, dx += row * width;
  const float mean = means[row], rstd = rstds[row];
  float sum_g = 0, sum_gx = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const float g = to_float(dy[j]) * (weight ? weight[j] : 1);
    sum_g += g;
    sum_gx += g * (to_float(x[j]) - mean) * rstd;
  }
  const float mean_g = centered ? block_sum(sum_g) / static_cast<float>(width) : 0;
  const float mean_gx = block_sum(sum_gx) / static_cast<float>(width);
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const float g = to_float(dy[j]) * (weight ? weight[j] : 1), normal = (to_float(x[j]) - mean) * rstd;
    dx[j] = from_float<T>(rstd * (g - mean_g - normal * mean_gx));
  }
}

// Column sums over kRowsPerPart rows each: dweight's to parts[part], dbias's to parts[count + part], both [width].
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_parts_kernel(int64_t rows, int64_t width, const T* __restrict__ dy, const T* __restrict__ x,
                        const float* __restrict__ means, const float* __restrict__ rstds, float* __restrict__ parts) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, part = blockIdx.y, count = gridDim.y;
  if (j >= width) return;
  float dweight = 0, dbias = 0;
  for (int64_t row = part * kRowsPerPart; row < min(rows, (part + 1) * kRowsPerPart); ++row) {
    const float g = to_float(dy[row * width + j]);
    dweight += g * (to_float(x[row * width + j]) - means[row]) * rstds[row];
    dbias += g;
  }
  parts[part * width + j] = dweight;
  parts[(count + part) * width + j] = dbias;
}

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(int64_t parts, int64_t width, const float* __restrict__ from, float* __restrict__ to) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= width) return;
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += from[part * width + j];
  to[j] = sum;
}

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  const int64_t width = args.in[0].shape()[-1], rows = args.out[1].elements();
  const float* weight = attrs.has_weight ? args.in[1].as<float>() : nullptr;
  const float* bias = attrs.has_bias ? args.in.back().as<float>() : nullptr;
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, layer_norm_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, width, args.in[0].as<T>(),
           weight, bias, attrs.epsilon, attrs.centered, args.out[0].as<T>(), args.out[1].as<float>(),
           args.out[2].as<float>());
  });
}

int64_t part_count(int64_t rows) { return (rows + kRowsPerPart - 1) / kRowsPerPart; }

size_t grad_workspace(const KernelQuery& query) {
  const auto width = static_cast<size_t>(query.in[0].shape[-1]);
  return 2 * static_cast<size_t>(part_count(query.in[3].shape.elements())) * width * sizeof(float);
}

void run_grad(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  const int64_t width = args.in[0].shape()[-1], rows = args.in[3].elements(), parts = part_count(rows);
  const float* weight = attrs.has_weight ? args.in[4].as<float>() : nullptr;
  const float *means = args.in[2].as<float>(), *rstds = args.in[3].as<float>();
  auto* sums = reinterpret_cast<float*>(args.workspace);
  const unsigned columns = blocks_for(width, kThreads);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *x = args.in[1].as<T>();
    launch(args.device, layer_norm_grad_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, width, dy, x, weight,
           means, rstds, attrs.centered, args.out[0].as<T>());
    if (attrs.has_weight || attrs.has_bias)
      launch(args.device, column_parts_kernel<T>, {columns, static_cast<unsigned>(parts)}, kThreads, 0, rows, width,
             dy, x, means, rstds, sums);
  });
  if (attrs.has_weight)
    launch(args.device, add_parts_kernel, columns, kThreads, 0, parts, width, sums, args.out[1].as<float>());
  if (attrs.has_bias)
    launch(args.device, add_parts_kernel, columns, kThreads, 0, parts, width, sums + parts * width,
           args.out.back().as<float>());
}

constexpr Kernel kKernels[] = {{"rows", nullptr, nullptr, run}};
constexpr Kernel kGradKernels[] = {{"rows", nullptr, grad_workspace, run_grad}};

}  // namespace

KernelList layer_norm_cuda_kernels() { return kKernels; }
KernelList layer_norm_grad_cuda_kernels() { return kGradKernels; }

}  // namespace linnet

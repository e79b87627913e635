#include <cmath>

#include "kernels/layer_norm.h"
#include "ops/layer_norm/layer_norm.h"

namespace linnet {
namespace {

void run_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[1].elements() ? args.in[0].elements() / width : 0;
  const double epsilon = args.node.attrs.as<LayerNormAttrs>().epsilon;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *weight = args.in[1].as<T>(), *bias = args.in[2].as<T>();
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = args.in[0].as<T>() + r * width;
      T* y = args.out[0].as<T>() + r * width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < width; ++j) mean += x[j];
      mean /= static_cast<double>(width);
      for (int64_t j = 0; j < width; ++j) variance += (x[j] - mean) * (x[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(width) + epsilon);
      for (int64_t j = 0; j < width; ++j) y[j] = static_cast<T>((x[j] - mean) * rstd * weight[j] + bias[j]);
      args.out[1].as<T>()[r] = static_cast<T>(mean);
      args.out[2].as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

// With x^ = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - mean(g) - x^ * mean(g * x^)),  dweight = sum_rows(dy * x^),  dbias = sum_rows(dy)
void run_grad_reference(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[3].elements();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T* weight = args.in[2].as<T>();
    T *dweight = args.out[1].as<T>(), *dbias = args.out[2].as<T>();
    for (int64_t j = 0; j < width; ++j) dweight[j] = dbias[j] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T *dy = args.in[0].as<T>() + r * width, *x = args.in[1].as<T>() + r * width;
      const double mean = args.in[3].as<T>()[r], rstd = args.in[4].as<T>()[r];
      double sum_g = 0, sum_gx = 0;
      for (int64_t j = 0; j < width; ++j) {
        const double normal = (x[j] - mean) * rstd, g = static_cast<double>(dy[j]) * weight[j];
        sum_g += g;
        sum_gx += g * normal;
        dweight[j] += static_cast<T>(dy[j] * normal);
        dbias[j] += dy[j];
      }
      for (int64_t j = 0; j < width; ++j) {
        const double normal = (x[j] - mean) * rstd, g = static_cast<double>(dy[j]) * weight[j];
        args.out[0].as<T>()[r * width + j] =
            static_cast<T>(rstd * (g - (sum_g + normal * sum_gx) / static_cast<double>(width)));
      }
    }
  });
}

void run(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1];
  layer_norm_forward(args.out[1].elements(), width, args.in[0].as<float>(), args.in[1].as<float>(),
                     args.in[2].as<float>(), static_cast<float>(args.node.attrs.as<LayerNormAttrs>().epsilon),
                     args.out[0].as<float>(), args.out[1].as<float>(), args.out[2].as<float>(), args.pool);
}

size_t grad_workspace(const KernelQuery& query) {
  return layer_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_grad(const KernelArgs& args) {
  layer_norm_backward(args.in[3].elements(), args.in[0].shape()[-1], args.in[0].as<float>(), args.in[1].as<float>(),
                      args.in[2].as<float>(), args.in[3].as<float>(), args.in[4].as<float>(), args.out[0].as<float>(),
                      args.out[1].as<float>(), args.out[2].as<float>(), args.workspace, args.pool);
}

constexpr Kernel kKernels[] = {{"simd", all_f32, nullptr, run}, {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"simd", all_f32, grad_workspace, run_grad},
                                   {"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList layer_norm_kernels() { return kKernels; }
KernelList layer_norm_grad_kernels() { return kGradKernels; }

}  // namespace linnet

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"
#include "kernels/residual_norm.h"
#include "ops/dropout/dropout.h"
#include "ops/residual_norm/residual_norm.h"

namespace linnet {
namespace {

// The mask's samples are the first axis, as for the op dropout.
ResidualDropout dropout_of(const KernelArgs& args, const Shape& shape) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  if (attrs.probability == 0) return {};
  return {attrs.probability, dropout_key(args.in.back().as<int32_t>(), attrs.site),
          std::max<int64_t>(shape.elements(1, shape.rank() - 1), 1)};
}

// What element `column` of a row is multiplied by.
double mask(const ResidualDropout& dropout, int64_t row, int64_t width, int64_t column) {
  if (dropout.p == 0) return 1;
  const int64_t index = row % dropout.rows_per_sample * width + column;
  const auto sample = static_cast<uint32_t>(row / dropout.rows_per_sample);
  return dropout_keeps(dropout.key, index, kDenseDropout, 0, sample, dropout.p) ? dropout_scale(dropout.p) : 0.0;
}

void run_reference(const KernelArgs& args) {
  const Shape& shape = args.out[0].shape();
  const int64_t width = shape[-1], rows = args.out[2].elements();
  const ResidualDropout dropout = dropout_of(args, shape);
  const double epsilon = args.node.attrs.as<ResidualNormAttrs>().epsilon;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const T *weight = args.in[2].as<T>(), *bias = args.in[3].as<T>();
    for (int64_t r = 0; r < rows; ++r) {
      const T *x = args.in[0].as<T>() + r * width, *f = args.in[1].as<T>() + r * width;
      T *sum = args.out[0].as<T>() + r * width, *y = args.out[1].as<T>() + r * width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < width; ++j) {
        const double scale = mask(dropout, r, width, j);
        sum[j] = static_cast<T>(x[j] + (scale == 0 ? 0 : f[j] * scale));
        mean += sum[j] / static_cast<double>(width);
      }
      for (int64_t j = 0; j < width; ++j) variance += (sum[j] - mean) * (sum[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(width) + epsilon);
      for (int64_t j = 0; j < width; ++j) y[j] = static_cast<T>((sum[j] - mean) * rstd * weight[j] + bias[j]);
      args.out[2].as<T>()[r] = static_cast<T>(mean);
      args.out[3].as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

template <class T>
void grad_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  const Shape& shape = args.out[0].shape();
  const int64_t width = shape[-1], rows = args.in[3].elements();
  const ResidualDropout dropout = dropout_of(args, shape);
  const T *weight = args.in[2].as<T>(), *dsum = attrs.dsum ? args.in[5].as<T>() : nullptr;
  T *dweight = args.out[1].as<T>(), *dbias = args.out[2].as<T>();
  for (int64_t j = 0; j < width; ++j) dweight[j] = dbias[j] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const T *dy = args.in[0].as<T>() + r * width, *sum = args.in[1].as<T>() + r * width;
    const double mean = args.in[3].as<T>()[r], rstd = args.in[4].as<T>()[r];
    double sum_g = 0, sum_gn = 0;
    for (int64_t j = 0; j < width; ++j) {
      const double normal = (sum[j] - mean) * rstd, g = static_cast<double>(dy[j]) * weight[j];
      sum_g += g;
      sum_gn += g * normal;
      dweight[j] += static_cast<T>(dy[j] * normal);
      dbias[j] += dy[j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const double normal = (sum[j] - mean) * rstd, g = static_cast<double>(dy[j]) * weight[j];
      const double d = rstd * (g - (sum_g + normal * sum_gn) / static_cast<double>(width)) +
                       (dsum ? static_cast<double>(dsum[r * width + j]) : 0.0);
      args.out[0].as<T>()[r * width + j] = static_cast<T>(d);
      if (dropout.p == 0) continue;
      const double scale = mask(dropout, r, width, j);
      args.out[3].as<T>()[r * width + j] = static_cast<T>(scale == 0 ? 0 : d * scale);
    }
  }
}

void run_grad_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { grad_reference<T>(args); });
}

void run(const KernelArgs& args) {
  ResidualNormForward call;
  call.rows = args.out[2].elements(), call.width = args.out[0].shape()[-1];
  call.x = args.in[0].as<float>(), call.f = args.in[1].as<float>();
  call.weight = args.in[2].as<float>(), call.bias = args.in[3].as<float>();
  call.epsilon = static_cast<float>(args.node.attrs.as<ResidualNormAttrs>().epsilon);
  call.dropout = dropout_of(args, args.out[0].shape());
  call.sum = args.out[0].as<float>(), call.y = args.out[1].as<float>();
  call.mean = args.out[2].as<float>(), call.rstd = args.out[3].as<float>();
  residual_norm_forward(call, args.pool);
}

size_t grad_workspace(const KernelQuery& query) {
  return residual_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_grad(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  ResidualNormBackward call;
  call.rows = args.in[3].elements(), call.width = args.in[0].shape()[-1];
  call.dy = args.in[0].as<float>(), call.sum = args.in[1].as<float>(), call.weight = args.in[2].as<float>();
  call.mean = args.in[3].as<float>(), call.rstd = args.in[4].as<float>();
  call.dsum = attrs.dsum ? args.in[5].as<float>() : nullptr;
  call.dropout = dropout_of(args, args.out[0].shape());
  call.dx = args.out[0].as<float>(), call.df = attrs.probability > 0 ? args.out[3].as<float>() : nullptr;
  call.dweight = args.out[1].as<float>(), call.dbias = args.out[2].as<float>();
  residual_norm_backward(call, args.workspace, args.pool);
}

constexpr Kernel kKernels[] = {{"simd", all_f32, nullptr, run}, {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"simd", all_f32, grad_workspace, run_grad},
                                   {"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList residual_norm_kernels() { return kKernels; }
KernelList residual_norm_grad_kernels() { return kGradKernels; }

}  // namespace linnet

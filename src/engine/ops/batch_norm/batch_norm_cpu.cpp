#include <algorithm>
#include <cmath>

#include "engine/kernels/norm/batch_norm.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/stored_operands.h"

namespace linnet {
namespace {

struct Sizes {
  Sizes(const Shape& x, const KernelArgs& args)
      : channels(x[-1]), rows(x.elements() / channels), epsilon(args.node.attrs.as<BatchNormAttrs>().epsilon) {}
  int64_t channels, rows;
  double epsilon;
};

void run_reference(const KernelArgs& args) {
  const Sizes s(args.in[0].shape(), args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *weight = args.in[1].as<T>(), *bias = args.in[2].as<T>();
    const auto& attrs = args.node.attrs.as<BatchNormAttrs>();
    for (int64_t c = 0; c < s.channels; ++c) {
      double mean = 0, variance = 0;
      for (int64_t r = 0; r < s.rows; ++r) mean += x[r * s.channels + c];
      mean /= static_cast<double>(s.rows);
      for (int64_t r = 0; r < s.rows; ++r) variance += (x[r * s.channels + c] - mean) * (x[r * s.channels + c] - mean);
      variance /= static_cast<double>(s.rows);
      const double scale = weight[c] / std::sqrt(variance + s.epsilon);
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels) {
        T y = static_cast<T>((x[i] - mean) * scale + static_cast<double>(bias[c]));
        if (attrs.residual) y += args.in[3].as<T>()[i];
        args.out[0].as<T>()[i] = attrs.relu && y < 0 ? 0 : y;
      }
      args.out[1].as<T>()[c] = static_cast<T>(mean);
      args.out[2].as<T>()[c] = static_cast<T>(variance);
    }
  });
}

// With x^ = (x - mean) * rstd:
//   dbias = sum(dy),  dweight = sum(dy * x^),  dx = weight * rstd * (dy - dbias / N - x^ * dweight / N)
// where dy is zero below a fused ReLU.
void run_grad_reference(const KernelArgs& args) {
  const Sizes s(args.in[1].shape(), args);
  for_float(args.in[1].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *x = args.in[1].as<T>(), *weight = args.in[2].as<T>();
    for (int64_t c = 0; c < s.channels; ++c) {
      const double mean = args.in[3].as<T>()[c], rstd = 1 / std::sqrt(args.in[4].as<T>()[c] + s.epsilon);
      const bool relu = args.node.attrs.as<BatchNormAttrs>().relu;
      const auto slope = [&](int64_t i) {
        const double scale = weight[c] * rstd;
        return relu && !((x[i] - mean) * scale + static_cast<double>(args.in[5].as<T>()[c]) > 0) ? T{0} : dy[i];
      };
      double sum = 0, product = 0;
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels)
        sum += slope(i), product += slope(i) * (x[i] - mean) * rstd;
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels)
        args.out[0].as<T>()[i] = static_cast<T>(
            weight[c] * rstd * (slope(i) - (sum + (x[i] - mean) * rstd * product) / static_cast<double>(s.rows)));
      args.out[1].as<T>()[c] = static_cast<T>(product);
      args.out[2].as<T>()[c] = static_cast<T>(sum);
    }
  });
}

template <int x>
size_t workspace(const KernelQuery& query) {
  const Shape& shape = query.in[x].shape;
  return batch_norm_workspace(shape.elements() / shape[-1], shape[-1]);
}

void run(const KernelArgs& args) {
  const Sizes s(args.in[0].shape(), args);
  const auto& attrs = args.node.attrs.as<BatchNormAttrs>();
  batch_norm_forward({.rows = s.rows,
                      .channels = s.channels,
                      .x = stored(args.in[0]),
                      .weight = args.in[1].as<float>(),
                      .bias = args.in[2].as<float>(),
                      .epsilon = s.epsilon,
                      .relu = attrs.relu},
                     attrs.residual ? stored(args.in[3]) : nullptr, mutable_stored(args.out[0]),
                     args.out[1].as<float>(), args.out[2].as<float>(), args.workspace, args.pool);
}

void run_grad(const KernelArgs& args) {
  const Sizes s(args.in[1].shape(), args);
  const bool relu = args.node.attrs.as<BatchNormAttrs>().relu;
  batch_norm_backward({.rows = s.rows,
                       .channels = s.channels,
                       .x = stored(args.in[1]),
                       .weight = args.in[2].as<float>(),
                       .bias = relu ? args.in[5].as<float>() : nullptr,
                       .epsilon = s.epsilon,
                       .relu = relu},
                      stored(args.in[0]), args.in[3].as<float>(), args.in[4].as<float>(), mutable_stored(args.out[0]),
                      args.out[1].as<float>(), args.out[2].as<float>(), args.workspace, args.pool);
}

constexpr Kernel kKernels[] = {{"simd", f32_or_all_reduced, workspace<0>, run},
                               {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"simd", f32_or_all_reduced, workspace<1>, run_grad},
                                   {"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList batch_norm_kernels() { return kKernels; }
KernelList batch_norm_grad_kernels() { return kGradKernels; }

}  // namespace linnet

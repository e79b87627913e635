#include <algorithm>
#include <cmath>
#include "engine/kernels/norm/row_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/stored_operands.h"

namespace linnet {
namespace {

// Null where the norm has none.
template <class T>
T* layer_norm_weight_of(const KernelArgs& args, size_t at) {
  return args.node.attrs.as<LayerNormAttrs>().has_weight ? args.in[at].as<T>() : nullptr;
}
template <class T>
T* layer_norm_bias_of(const KernelArgs& args) {
  return args.node.attrs.as<LayerNormAttrs>().has_bias ? args.in.back().as<T>() : nullptr;
}
template <class T>
T* weight_gradient(const KernelArgs& args) {
  return args.node.attrs.as<LayerNormAttrs>().has_weight ? args.out[1].as<T>() : nullptr;
}
template <class T>
T* bias_gradient(const KernelArgs& args) {
  return args.node.attrs.as<LayerNormAttrs>().has_bias ? args.out.back().as<T>() : nullptr;
}

void run_layer_norm_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  const int64_t width = args.in[0].shape()[-1], rows = args.out[1].elements() ? args.in[0].elements() / width : 0;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *weight = layer_norm_weight_of<T>(args, 1), *bias = layer_norm_bias_of<T>(args);
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = args.in[0].as<T>() + r * width;
      T* y = args.out[0].as<T>() + r * width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; attrs.centered && j < width; ++j) mean += x[j];
      mean /= static_cast<double>(width);
      for (int64_t j = 0; j < width; ++j) variance += (x[j] - mean) * (x[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(width) + attrs.epsilon);
      for (int64_t j = 0; j < width; ++j)
        y[j] = static_cast<T>((x[j] - mean) * rstd * (weight ? weight[j] : T(1)) + (bias ? bias[j] : T(0)));
      args.out[1].as<T>()[r] = static_cast<T>(mean);
      args.out[2].as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

// With x^ = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - mean(g) (when centered) - x^ * mean(g * x^)),  dweight = sum_rows(dy * x^),  dbias = sum_rows(dy)
void run_layer_norm_grad_reference(const KernelArgs& args) {
  const bool centered = args.node.attrs.as<LayerNormAttrs>().centered;
  const int64_t width = args.in[0].shape()[-1], rows = args.in[3].elements();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T* weight = layer_norm_weight_of<T>(args, 4);
    T *dweight = weight_gradient<T>(args), *dbias = bias_gradient<T>(args);
    for (T* sums : {dweight, dbias})
      if (sums) std::fill_n(sums, width, T(0));
    for (int64_t r = 0; r < rows; ++r) {
      const T *dy = args.in[0].as<T>() + r * width, *x = args.in[1].as<T>() + r * width;
      const double mean = args.in[2].as<T>()[r], rstd = args.in[3].as<T>()[r];
      const auto slope = [&](int64_t j) { return static_cast<double>(dy[j]) * (weight ? weight[j] : T(1)); };
      double sum_g = 0, sum_gx = 0;
      for (int64_t j = 0; j < width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        if (centered) sum_g += slope(j);
        sum_gx += slope(j) * normal;
        if (dweight) dweight[j] += static_cast<T>(dy[j] * normal);
        if (dbias) dbias[j] += dy[j];
      }
      for (int64_t j = 0; j < width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        args.out[0].as<T>()[r * width + j] =
            static_cast<T>(rstd * (slope(j) - (sum_g + normal * sum_gx) / static_cast<double>(width)));
      }
    }
  });
}

void run_layer_norm(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  row_norm_forward({.rows = args.out[1].elements(),
                    .width = args.in[0].shape()[-1],
                    .x = stored(args.in[0]),
                    .weight = layer_norm_weight_of<float>(args, 1),
                    .bias = layer_norm_bias_of<float>(args),
                    .epsilon = static_cast<float>(attrs.epsilon),
                    .y = mutable_stored(args.out[0]),
                    .mean = args.out[1].as<float>(),
                    .rstd = args.out[2].as<float>(),
                    .centered = attrs.centered},
                   args.pool);
}

size_t layer_norm_grad_workspace(const KernelQuery& query) {
  return row_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_layer_norm_grad(const KernelArgs& args) {
  row_norm_backward({.rows = args.in[3].elements(),
                     .width = args.in[0].shape()[-1],
                     .dy = stored(args.in[0]),
                     .sum = stored(args.in[1]),
                     .weight = layer_norm_weight_of<float>(args, 4),
                     .mean = args.in[2].as<float>(),
                     .rstd = args.in[3].as<float>(),
                     .dx = mutable_stored(args.out[0]),
                     .dweight = weight_gradient<float>(args),
                     .dbias = bias_gradient<float>(args),
                     .centered = args.node.attrs.as<LayerNormAttrs>().centered},
                    args.workspace, args.pool);
}

}  // namespace

LINNET_KERNELS(layer_norm, {"simd", f32_or_all_reduced, nullptr, run_layer_norm},
               {"reference", nullptr, nullptr, run_layer_norm_reference})
LINNET_KERNELS(layer_norm_grad, {"simd", f32_or_all_reduced, layer_norm_grad_workspace, run_layer_norm_grad},
               {"reference", nullptr, nullptr, run_layer_norm_grad_reference})

}  // namespace linnet

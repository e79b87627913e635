#include <algorithm>
#include <cmath>
#include "engine/kernels/norm/row_norm.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/residual_norm/residual_norm.h"
#include "engine/ops/stored_operands.h"

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

// Null where there is none.
template <class T>
T* residual_norm_weight_of(const KernelArgs& args) {
  return args.node.attrs.as<ResidualNormAttrs>().norm.has_weight ? args.in[2].as<T>() : nullptr;
}
template <class T>
T* residual_norm_bias_of(const KernelArgs& args) {
  const LayerNormAttrs& norm = args.node.attrs.as<ResidualNormAttrs>().norm;
  return norm.has_bias ? args.in[2u + norm.has_weight].as<T>() : nullptr;
}

// The operands of the gradient that depend on the attributes.
template <class T>
struct GradOperands {
  explicit GradOperands(const KernelArgs& args) {
    const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
    if (attrs.norm.has_weight) weight = args.in[4].as<T>(), dweight = args.out[1].as<T>();
    if (attrs.norm.has_bias) dbias = args.out[1u + attrs.norm.has_weight].as<T>();
    if (attrs.dsum) dsum = args.in[static_cast<size_t>(attrs.dsum_input())].as<T>();
    if (attrs.probability > 0) df = args.out.back().as<T>();
  }
  const T *weight = nullptr, *dsum = nullptr;
  T *dweight = nullptr, *dbias = nullptr, *df = nullptr;
};

void run_residual_norm_reference(const KernelArgs& args) {
  const Shape& shape = args.out[0].shape();
  const int64_t width = shape[-1], rows = args.out[2].elements();
  const ResidualDropout dropout = dropout_of(args, shape);
  const LayerNormAttrs& norm = args.node.attrs.as<ResidualNormAttrs>().norm;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const T *weight = residual_norm_weight_of<T>(args), *bias = residual_norm_bias_of<T>(args);
    for (int64_t r = 0; r < rows; ++r) {
      const T *x = args.in[0].as<T>() + r * width, *f = args.in[1].as<T>() + r * width;
      T *sum = args.out[0].as<T>() + r * width, *y = args.out[1].as<T>() + r * width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < width; ++j) {
        const double scale = mask(dropout, r, width, j);
        sum[j] = static_cast<T>(x[j] + (scale == 0 ? 0 : f[j] * scale));
        if (norm.centered) mean += sum[j] / static_cast<double>(width);
      }
      for (int64_t j = 0; j < width; ++j) variance += (sum[j] - mean) * (sum[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(width) + norm.epsilon);
      for (int64_t j = 0; j < width; ++j)
        y[j] = static_cast<T>((sum[j] - mean) * rstd * (weight ? weight[j] : T(1)) + (bias ? bias[j] : T(0)));
      args.out[2].as<T>()[r] = static_cast<T>(mean);
      args.out[3].as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

template <class T>
void residual_norm_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  const Shape& shape = args.out[0].shape();
  const int64_t width = shape[-1], rows = args.in[3].elements();
  const ResidualDropout dropout = dropout_of(args, shape);
  const GradOperands<T> x(args);
  for (T* sums : {x.dweight, x.dbias})
    if (sums) std::fill_n(sums, width, T(0));
  for (int64_t r = 0; r < rows; ++r) {
    const T *dy = args.in[0].as<T>() + r * width, *sum = args.in[1].as<T>() + r * width;
    const double mean = args.in[2].as<T>()[r], rstd = args.in[3].as<T>()[r];
    const auto slope = [&](int64_t j) { return static_cast<double>(dy[j]) * (x.weight ? x.weight[j] : T(1)); };
    double sum_g = 0, sum_gn = 0;
    for (int64_t j = 0; j < width; ++j) {
      const double normal = (sum[j] - mean) * rstd;
      if (attrs.norm.centered) sum_g += slope(j);
      sum_gn += slope(j) * normal;
      if (x.dweight) x.dweight[j] += static_cast<T>(dy[j] * normal);
      if (x.dbias) x.dbias[j] += dy[j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const double normal = (sum[j] - mean) * rstd;
      const double d = rstd * (slope(j) - (sum_g + normal * sum_gn) / static_cast<double>(width)) +
                       (x.dsum ? static_cast<double>(x.dsum[r * width + j]) : 0.0);
      args.out[0].as<T>()[r * width + j] = static_cast<T>(d);
      if (dropout.p == 0) continue;
      const double scale = mask(dropout, r, width, j);
      x.df[r * width + j] = static_cast<T>(scale == 0 ? 0 : d * scale);
    }
  }
}

void run_residual_norm_grad_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { residual_norm_grad_reference<T>(args); });
}

void run_residual_norm(const KernelArgs& args) {
  RowNormForward call;
  call.rows = args.out[2].elements(), call.width = args.out[0].shape()[-1];
  call.x = stored(args.in[0]), call.f = stored(args.in[1]);
  call.weight = residual_norm_weight_of<float>(args), call.bias = residual_norm_bias_of<float>(args);
  const LayerNormAttrs& norm = args.node.attrs.as<ResidualNormAttrs>().norm;
  call.epsilon = static_cast<float>(norm.epsilon), call.centered = norm.centered;
  call.dropout = dropout_of(args, args.out[0].shape());
  call.sum = mutable_stored(args.out[0]), call.y = mutable_stored(args.out[1]);
  call.mean = args.out[2].as<float>(), call.rstd = args.out[3].as<float>();
  row_norm_forward(call, args.pool);
}

size_t residual_norm_grad_workspace(const KernelQuery& query) {
  return row_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

void run_residual_norm_grad(const KernelArgs& args) {
  const GradOperands<float> x(args);
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  RowNormBackward call;
  call.rows = args.in[3].elements(), call.width = args.in[0].shape()[-1];
  call.centered = attrs.norm.centered;
  call.dy = stored(args.in[0]), call.sum = stored(args.in[1]), call.weight = x.weight;
  call.mean = args.in[2].as<float>(), call.rstd = args.in[3].as<float>();
  if (attrs.dsum) call.dsum = stored(args.in[static_cast<size_t>(attrs.dsum_input())]);
  call.dropout = dropout_of(args, args.out[0].shape());
  call.dx = mutable_stored(args.out[0]);
  if (attrs.probability > 0) call.df = mutable_stored(args.out.back());
  call.dweight = x.dweight, call.dbias = x.dbias;
  row_norm_backward(call, args.workspace, args.pool);
}

}  // namespace

LINNET_KERNELS(residual_norm, {"simd", f32_or_all_reduced, nullptr, run_residual_norm},
               {"reference", nullptr, nullptr, run_residual_norm_reference})
LINNET_KERNELS(residual_norm_grad, {"simd", f32_or_all_reduced, residual_norm_grad_workspace, run_residual_norm_grad},
               {"reference", nullptr, nullptr, run_residual_norm_grad_reference})

}  // namespace linnet

#include <algorithm>
#include <cmath>
#include "engine/kernels/norm/row_norm.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/layer_norm/norm_operands.h"

namespace linnet {
namespace {

ResidualDropout dropout_of(const NormDropout& dropout) {
  if (dropout.probability == 0) return {};
  return {dropout.probability, dropout_key(dropout.random, dropout.site), dropout.rows_per_sample};
}

// What element `column` of a row is multiplied by.
double mask(const ResidualDropout& dropout, int64_t row, int64_t width, int64_t column) {
  if (dropout.p == 0) return 1;
  const int64_t index = row % dropout.rows_per_sample * width + column;
  const auto sample = static_cast<uint32_t>(row / dropout.rows_per_sample);
  return dropout_keeps(dropout.key, index, kDenseDropout, 0, sample, dropout.p) ? dropout_scale(dropout.p) : 0.0;
}

template <bool kResidual>
void run_norm_reference(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  const ResidualDropout dropout = dropout_of(o.dropout);
  for_float(o.x.type.dtype, [&]<class T>() {
    const T *weight = elements_of<T>(o.weight), *bias = elements_of<T>(o.bias);
    for (int64_t r = 0; r < o.rows; ++r) {
      const T* x = o.x.template as<T>() + r * o.width;
      if constexpr (kResidual) {
        const T* f = o.f->template as<T>() + r * o.width;
        T* sum = o.sum->template as<T>() + r * o.width;
        for (int64_t j = 0; j < o.width; ++j) {
          const double scale = mask(dropout, r, o.width, j);
          sum[j] = static_cast<T>(x[j] + (scale == 0 ? 0 : f[j] * scale));
        }
        x = sum;
      }
      T* y = o.y.template as<T>() + r * o.width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; o.attrs.norm.centered && j < o.width; ++j) mean += x[j];
      mean /= static_cast<double>(o.width);
      for (int64_t j = 0; j < o.width; ++j) variance += (x[j] - mean) * (x[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(o.width) + o.attrs.norm.epsilon);
      for (int64_t j = 0; j < o.width; ++j)
        y[j] = static_cast<T>((x[j] - mean) * rstd * (weight ? weight[j] : T(1)) + (bias ? bias[j] : T(0)));
      o.mean.template as<T>()[r] = static_cast<T>(mean);
      o.rstd.template as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

// With n = (x - mean) * rstd and g = dy * weight:
//   dx = dsum + rstd * (g - mean(g) (when centered) - n * mean(g * n)),  df = dropout(dx)
//   dweight = sum_rows(dy * n),  dbias = sum_rows(dy)
template <bool kResidual>
void run_norm_grad_reference(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  const ResidualDropout dropout = dropout_of(o.dropout);
  for_float(o.dx.type.dtype, [&]<class T>() {
    const T *weight = elements_of<T>(o.weight), *dsum = elements_of<T>(o.dsum);
    T *dweight = elements_of<T>(o.dweight), *dbias = elements_of<T>(o.dbias), *df = elements_of<T>(o.df);
    for (T* sums : {dweight, dbias})
      if (sums) std::fill_n(sums, o.width, T(0));
    for (int64_t r = 0; r < o.rows; ++r) {
      const T *dy = o.dy.template as<T>() + r * o.width, *x = o.x.template as<T>() + r * o.width;
      T* dx = o.dx.template as<T>() + r * o.width;
      const double mean = o.mean.template as<T>()[r], rstd = o.rstd.template as<T>()[r];
      const auto slope = [&](int64_t j) { return static_cast<double>(dy[j]) * (weight ? weight[j] : T(1)); };
      double sum_g = 0, sum_gn = 0;
      for (int64_t j = 0; j < o.width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        if (o.attrs.norm.centered) sum_g += slope(j);
        sum_gn += slope(j) * normal;
        if (dweight) dweight[j] += static_cast<T>(dy[j] * normal);
        if (dbias) dbias[j] += dy[j];
      }
      for (int64_t j = 0; j < o.width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        double d = rstd * (slope(j) - (sum_g + normal * sum_gn) / static_cast<double>(o.width));
        if (dsum) d += static_cast<double>(dsum[r * o.width + j]);
        dx[j] = static_cast<T>(d);
        if (!df) continue;
        const double scale = mask(dropout, r, o.width, j);
        df[r * o.width + j] = static_cast<T>(scale == 0 ? 0 : d * scale);
      }
    }
  });
}

template <bool kResidual>
void run_norm(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  RowNormForward call{.rows = o.rows,
                      .width = o.width,
                      .x = stored(o.x),
                      .weight = elements_of<float>(o.weight),
                      .bias = elements_of<float>(o.bias),
                      .epsilon = static_cast<float>(o.attrs.norm.epsilon),
                      .dropout = dropout_of(o.dropout),
                      .y = mutable_stored(o.y),
                      .mean = o.mean.template as<float>(),
                      .rstd = o.rstd.template as<float>(),
                      .centered = o.attrs.norm.centered};
  if (kResidual) call.f = stored(*o.f), call.sum = mutable_stored(*o.sum);
  row_norm_forward(call, args.pool);
}

size_t norm_grad_workspace(const KernelQuery& query) {
  return row_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

template <bool kResidual>
void run_norm_grad(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  RowNormBackward call{.rows = o.rows,
                       .width = o.width,
                       .dy = stored(o.dy),
                       .sum = stored(o.x),
                       .weight = elements_of<float>(o.weight),
                       .mean = o.mean.template as<float>(),
                       .rstd = o.rstd.template as<float>(),
                       .dropout = dropout_of(o.dropout),
                       .dx = mutable_stored(o.dx),
                       .dweight = elements_of<float>(o.dweight),
                       .dbias = elements_of<float>(o.dbias),
                       .centered = o.attrs.norm.centered};
  if (o.dsum) call.dsum = stored(*o.dsum);
  if (o.df) call.df = mutable_stored(*o.df);
  row_norm_backward(call, args.workspace, args.pool);
}

}  // namespace

LINNET_KERNELS(layer_norm, {"simd", f32_or_all_reduced, nullptr, run_norm<false>},
               {"reference", nullptr, nullptr, run_norm_reference<false>})
LINNET_KERNELS(layer_norm_grad, {"simd", f32_or_all_reduced, norm_grad_workspace, run_norm_grad<false>},
               {"reference", nullptr, nullptr, run_norm_grad_reference<false>})
LINNET_KERNELS(residual_norm, {"simd", f32_or_all_reduced, nullptr, run_norm<true>},
               {"reference", nullptr, nullptr, run_norm_reference<true>})
LINNET_KERNELS(residual_norm_grad, {"simd", f32_or_all_reduced, norm_grad_workspace, run_norm_grad<true>},
               {"reference", nullptr, nullptr, run_norm_grad_reference<true>})

}  // namespace linnet

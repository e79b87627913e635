#include "engine/ops/batch_norm/batch_norm.h"
#include <cmath>
#include "engine/kernels/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_batch_norm(const InferArgs& args) {
  const bool residual = args.attrs.as<BatchNormAttrs>().residual;
  expect_inputs(args, residual ? 4 : 3);
  const TensorType &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  const std::string got = "got " + x.text() + ", weight " + weight.text() + " and bias " + bias.text();
  expect(is_float(x.dtype) && x.shape.rank() >= 1, got, ", expected [..., channels] of a float type");
  const TensorType channels{full_type(x.dtype), {x.shape[-1]}};
  expect(weight == channels && bias == channels, got, ", expected ", channels, " for both");
  expect(!residual || args.in[3] == x, got, ", the residual differs from x");
  expect(x.shape.elements() > 0, got, ", there is nothing to take the mean of");
  return {x, channels, channels};
}

std::vector<TensorType> infer_batch_norm_grad(const InferArgs& args) {
  expect_inputs(args, args.attrs.as<BatchNormAttrs>().relu ? 6 : 5);
  return {args.in[1], args.in[2], args.in[2]};
}

std::vector<Tensor> batch_norm_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<BatchNormAttrs>();
  if (attrs.residual || attrs.relu) fail_internal("batch_norm: the gradient of a fused one");
  if (!args.out_grad[0].defined()) return {{}, {}, {}};
  return args.graph.add(kBatchNormGrad, std::array{args.out_grad[0], args.in[0], args.in[1], args.out[1], args.out[2]},
      args.node.attrs, args.node.where);
}

std::vector<Tensor> decompose_batch_norm(const DecomposeArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], bias = args.in[2];
  const double share = static_cast<double>(weight.shape().elements()) / static_cast<double>(x.shape().elements());
  const Tensor mean = sum_to(x, weight.shape()) * share, centered = x - mean;
  const Tensor variance = sum_to(square(centered), weight.shape()) * share;
  const auto& attrs = args.attrs<BatchNormAttrs>();
  Tensor y = centered * (rsqrt(variance + attrs.epsilon) * weight) + bias;
  if (attrs.residual) y = y + args.in[3];
  return {attrs.relu ? relu(y) : y, mean, variance};
}

struct BatchNormSizes {
  BatchNormSizes(const Shape& x, const KernelArgs& args)
      : channels(x[-1]), rows(x.elements() / channels), epsilon(args.attrs<BatchNormAttrs>().epsilon) {}
  int64_t channels, rows;
  double epsilon;
};

void run_batch_norm_reference(const KernelArgs& args) {
  const BatchNormSizes s(args.in[0].shape(), args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *weight = args.in[1].as<T>(), *bias = args.in[2].as<T>();
    const auto& attrs = args.attrs<BatchNormAttrs>();
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
void run_batch_norm_grad_reference(const KernelArgs& args) {
  const BatchNormSizes s(args.in[1].shape(), args);
  for_float(args.in[1].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *x = args.in[1].as<T>(), *weight = args.in[2].as<T>();
    for (int64_t c = 0; c < s.channels; ++c) {
      const double mean = args.in[3].as<T>()[c], rstd = 1 / std::sqrt(args.in[4].as<T>()[c] + s.epsilon);
      const bool relu = args.attrs<BatchNormAttrs>().relu;
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

template <int x> size_t batch_norm_kernel_workspace(const KernelQuery& query) {
  const Shape& shape = query.in[x].shape;
  return batch_norm_workspace(shape.elements() / shape[-1], shape[-1]);
}

void run_batch_norm(const KernelArgs& args) {
  const BatchNormSizes s(args.in[0].shape(), args);
  const auto& attrs = args.attrs<BatchNormAttrs>();
  batch_norm_forward({.rows = s.rows,
                         .channels = s.channels,
                         .x = stored(args.in[0]),
                         .weight = args.in[1].as<float>(),
                         .bias = args.in[2].as<float>(),
                         .epsilon = s.epsilon,
                         .relu = attrs.relu},
      attrs.residual ? stored(args.in[3]) : nullptr, mutable_stored(args.out[0]), args.out[1].as<float>(),
      args.out[2].as<float>(), args.workspace, args.pool);
}

void run_batch_norm_grad(const KernelArgs& args) {
  const BatchNormSizes s(args.in[1].shape(), args);
  const bool relu = args.attrs<BatchNormAttrs>().relu;
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
}  // namespace

const OpDef kBatchNorm{.name = "batch_norm",
    .infer = infer_batch_norm,
    .gradient = batch_norm_gradient,
    .decompose = decompose_batch_norm,
    .storage = reduced<0b1001, 0b001>};
const OpDef kBatchNormGrad{
    .name = "batch_norm_grad", .infer = infer_batch_norm_grad, .storage = reduced<0b00011, 0b001>};

BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  const std::vector<Tensor> out = op_results(kBatchNorm, x, {weight, bias}, BatchNormAttrs{epsilon});
  return {out[0], out[1], out[2]};
}

LINNET_KERNELS(batch_norm, {"simd", run_batch_norm, f32_or_all_reduced, batch_norm_kernel_workspace<0>},
    {"reference", run_batch_norm_reference})
LINNET_KERNELS(batch_norm_grad, {"simd", run_batch_norm_grad, f32_or_all_reduced, batch_norm_kernel_workspace<1>},
    {"reference", run_batch_norm_grad_reference})
}  // namespace linnet

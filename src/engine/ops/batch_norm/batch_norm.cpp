#include "engine/ops/batch_norm/batch_norm.h"

#include "base/error.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  const bool residual = args.attrs.as<BatchNormAttrs>().residual;
  expect_inputs(args, residual ? 4 : 3);
  const TensorType &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  const std::string got = "got " + x.text() + ", weight " + weight.text() + " and bias " + bias.text();
  expect(is_float(x.dtype) && x.shape.rank() >= 1, got + ", expected [..., channels] of a float type");
  const TensorType channels{full_type(x.dtype), {x.shape[-1]}};
  expect(weight == channels && bias == channels, got + ", expected " + channels.text() + " for both");
  expect(!residual || args.in[3] == x, got + ", the residual differs from x");
  expect(x.shape.elements() > 0, got + ", there is nothing to take the mean of");
  return {x, channels, channels};
}

std::vector<TensorType> infer_grad(const InferArgs& args) {
  expect_inputs(args, args.attrs.as<BatchNormAttrs>().relu ? 6 : 5);
  return {args.in[1], args.in[2], args.in[2]};
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  const auto& attrs = args.node.attrs.as<BatchNormAttrs>();
  if (attrs.residual || attrs.relu) fail_internal("batch_norm: the gradient of a fused one");
  if (!args.out_grad[0].defined()) return {{}, {}, {}};
  return args.graph.add(kBatchNormGrad, std::array{args.out_grad[0], args.in[0], args.in[1], args.out[1], args.out[2]},
                        args.node.attrs, args.node.where);
}

std::vector<Tensor> decompose(const DecomposeArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], bias = args.in[2];
  const double share = static_cast<double>(weight.shape().elements()) / static_cast<double>(x.shape().elements());
  const Tensor mean = sum_to(x, weight.shape()) * share, centered = x - mean;
  const Tensor variance = sum_to(square(centered), weight.shape()) * share;
  const auto& attrs = args.node.attrs.as<BatchNormAttrs>();
  Tensor y = centered * (rsqrt(variance + attrs.epsilon) * weight) + bias;
  if (attrs.residual) y = y + args.in[3];
  return {attrs.relu ? relu(y) : y, mean, variance};
}

}  // namespace

const OpDef kBatchNorm{.name = "batch_norm",
                       .infer = infer,
                       .gradient = gradient,
                       .decompose = decompose,
                       .storage = reduced<0b1001, 0b001>};
const OpDef kBatchNormGrad{.name = "batch_norm_grad",
                           .infer = infer_grad,
                           .storage = reduced<0b00011, 0b001>};

BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  const std::vector<Tensor> out =
      graph_of(x)->add(kBatchNorm, std::array{x.value, weight, bias}, BatchNormAttrs{epsilon}, x.where);
  return {out[0], out[1], out[2]};
}

}  // namespace linnet

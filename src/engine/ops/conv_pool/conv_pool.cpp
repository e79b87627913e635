#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/max_pool/max_pool.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_conv_pool(const InferArgs& args) {
  const PixelScaling& scaling = args.attrs.as<ConvReluPoolAttrs>().scaling;
  expect_inputs(args, 3);
  const TensorType &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  const std::string all = "got " + x.text() + ", weight " + weight.text() + ", bias " + bias.text();
  expect(x.shape.rank() == 4 && weight.shape.rank() == 4, all, ", expected [N, H, W, C] and [O, 3, 3, C]");
  expect(is_float(weight.dtype) &&
             (x.dtype == DType::kU8 || weight.dtype == x.dtype || weight.dtype == full_type(x.dtype)),
         all, ", expected one float type, or images of u8");
  expect(weight.shape[1] == 3 && weight.shape[2] == 3, all, ", expected filters of 3x3");
  expect(weight.shape[3] == x.shape[3], all, ", channels ", x.shape[3], " and ", weight.shape[3], " differ");
  expect(bias == TensorType{full_type(weight.dtype), {weight.shape[0]}}, all, ", expected bias [O]");
  expect(x.shape[1] >= 2 && x.shape[2] >= 2, all, ", images smaller than the 2x2 window");
  const size_t channels = x.dtype == DType::kU8 ? static_cast<size_t>(x.shape[3]) : 0;
  expect(scaling.scale.size() == channels && scaling.shift.size() == channels, all, ", and a scaling of ",
         scaling.scale.size(), " channels; u8 needs one, floats none");
  const TensorType y{x.dtype == DType::kU8 ? weight.dtype : x.dtype,
                     {x.shape[0], x.shape[1] / 2, x.shape[2] / 2, weight.shape[0]}};
  return {y, {DType::kU8, y.shape}};
}

// x, which, dy (or its two factors) -> dweight, dbias
std::vector<TensorType> infer_conv_pool_weight_grad(const InferArgs& args) {
  if (args.in.size() != 4) expect_inputs(args, 3);
  const DType dtype = full_type(args.in[2].dtype);
  const int64_t filters = args.in[1].shape[3];
  return {{dtype, {filters, 3, 3, args.in[0].shape[3]}}, {dtype, {filters}}};
}

// weight, which, dy -> dx
std::vector<TensorType> infer_conv_pool_input_grad(const InferArgs& args) {
  expect_inputs(args, 3);
  return {{args.in[2].dtype, args.attrs.as<ConvReluPoolAttrs>().input}};
}

std::vector<Tensor> conv_pool_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], which = args.out[1], dy = args.out_grad[0];
  ConvReluPoolAttrs attrs = args.attrs<ConvReluPoolAttrs>();
  const std::vector<Tensor> weights = args.add(kConvReluPoolWeightGrad, {x, which, dy});
  attrs.input = x.shape();
  const bool has_slopes = is_float(x.type().dtype);
  return {has_slopes ? args.add(kConvReluPoolInputGrad, {weight, which, dy}, attrs)[0] : Tensor{}, weights[0],
          weights[1]};
}

// The second output differs where ReLU made all four zero; only the gradient reads it.
std::vector<Tensor> decompose_conv_pool(const DecomposeArgs& args) {
  const PixelScaling& scaling = args.attrs<ConvReluPoolAttrs>().scaling;
  Tensor x = args.in[0];
  const Tensor weight = args.in[1], bias = args.in[2];
  if (!is_float(x.type().dtype)) x = scale_pixels(x, scaling, weight.type().dtype);
  const Tensor positive = relu(conv2d(x, weight, 1, 1) + bias);
  return args.graph.add(kMaxPool, std::array{positive}, MaxPoolAttrs{.size = 2, .stride = 2}, args.node.where);
}

// Of the convolution at every place, by the pooled results' shape and the channels; so are its gradients counted,
// though three of four places of a window have none.
double convolution_flops(const Shape& pooled, int64_t channels) {
  return 2.0 * 9 * 4 * static_cast<double>(pooled.elements()) * static_cast<double>(channels);
}

double conv_pool_forward_flops(const FlopsArgs& args) {
  return convolution_flops(args.out[0].shape, args.in[0].shape[3]);
}
double conv_pool_weight_grad_flops(const FlopsArgs& args) {
  const double product = args.in.size() == 4 ? 2.0 * static_cast<double>(args.in[1].shape.elements()) *
                                                   static_cast<double>(args.in[2].shape[1])
                                             : 0.0;
  return product + convolution_flops(args.in[1].shape, args.in[0].shape[3]);
}
double conv_pool_input_grad_flops(const FlopsArgs& args) {
  return convolution_flops(args.in[2].shape, args.out[0].shape[3]);
}

}  // namespace

const OpDef kConvReluPool{.name = "conv_relu_pool",
                          .infer = infer_conv_pool,
                          .gradient = conv_pool_gradient,
                          .decompose = decompose_conv_pool,
                          .flops = conv_pool_forward_flops};
const OpDef kConvReluPoolWeightGrad{
    .name = "conv_relu_pool_weight_grad", .infer = infer_conv_pool_weight_grad, .flops = conv_pool_weight_grad_flops};
const OpDef kConvReluPoolInputGrad{
    .name = "conv_relu_pool_input_grad", .infer = infer_conv_pool_input_grad, .flops = conv_pool_input_grad_flops};

Tensor conv_relu_pool(At x, Tensor weight, Tensor bias, PixelScaling scaling) {
  return op_result(kConvReluPool, x, {weight, bias}, ConvReluPoolAttrs{std::move(scaling), {}});
}

}  // namespace linnet

#include "engine/ops/conv2d/conv2d.h"
#include "base/error.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_conv2d(const InferArgs& args) {
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  expect_inputs(args, static_cast<size_t>(2 + attrs.scale + attrs.bias + attrs.residual + attrs.packed));
  const TensorType &x = args.in[0], &weight = args.in[1];
  const std::string both = "got " + x.text() + " and weight " + weight.text();
  expect(is_float(x.dtype) && (weight.dtype == x.dtype || weight.dtype == full_type(x.dtype)), both,
         ", expected two of one float type");
  expect(x.shape.rank() == 4 && weight.shape.rank() == 4, both, ", expected [N, H, W, C] and [O, R, S, C]");
  expect(attrs.stride >= 1 && attrs.padding >= 0 && attrs.dilation >= 1 && attrs.groups >= 1, "got stride ",
         attrs.stride, ", padding ", attrs.padding, ", dilation ", attrs.dilation, " and groups ", attrs.groups);
  const std::string groups = attrs.groups == 1 ? "" : " in " + std::to_string(attrs.groups) + " groups";
  expect(x.shape[3] == weight.shape[3] * attrs.groups && weight.shape[0] % attrs.groups == 0, both, groups,
         ", channels ", x.shape[3], " and ", weight.shape[3], " differ");
  TensorType out = x;
  for (int axis : {1, 2}) {
    const int64_t window = weight.shape[axis] == 0 ? 0 : (weight.shape[axis] - 1) * attrs.dilation + 1;
    const int64_t room = x.shape[axis] + 2 * attrs.padding - window;
    expect(room >= 0, both, ", the window is larger than the padded image");
    out.shape.set(axis, room / attrs.stride + 1);
  }
  out.shape.set(3, weight.shape[0]);
  const TensorType row{full_type(x.dtype), {weight.shape[0]}};
  size_t next = 2;
  for (const bool has_row : {attrs.scale, attrs.bias})
    if (has_row) expect(args.in[next++] == row, both, ", expected ", row, " for each filter");
  if (attrs.residual) expect(args.in[next] == out, both, ", expected a residual ", out);
  return {out};
}

// dy, weight -> dx
std::vector<TensorType> infer_conv2d_input_grad(const InferArgs& args) {
  expect_inputs(args, 2);
  return {{args.in[0].dtype, args.attrs.as<Conv2dAttrs>().result}};
}

// x, dy -> dweight
std::vector<TensorType> infer_conv2d_weight_grad(const InferArgs& args) {
  expect_inputs(args, 2);
  return {{full_type(args.in[0].dtype), args.attrs.as<Conv2dAttrs>().result}};
}

// Attributes of one of the three forms of a convolution; `result` is empty for the forward one.
Conv2dAttrs with_result(Conv2dAttrs attrs, const Shape& result) {
  attrs.result = result;
  return attrs;
}

// A convolution and its gradients are linear in both operands, and each is differentiated by the two other forms: y by
// x and weight; x by y and weight; weight by x and y.
std::vector<Tensor> conv2d_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], dy = args.out_grad[0];
  const auto& attrs = args.attrs<Conv2dAttrs>();
  if (attrs.is_fused()) fail_internal("the gradient of a convolution is taken before passes fuse it");
  return {args.add(kConv2dInputGrad, {dy, weight}, with_result(attrs, x.shape()))[0],
          args.add(kConv2dWeightGrad, {x, dy}, with_result(attrs, weight.shape()))[0]};
}

std::vector<Tensor> gradient_of_input(const GradientArgs& args) {
  const Tensor dy = args.in[0], weight = args.in[1], g = args.out_grad[0];
  const auto& attrs = args.attrs<Conv2dAttrs>();
  return {args.add(kConv2d, {g, weight}, with_result(attrs, {}))[0],
          args.add(kConv2dWeightGrad, {g, dy}, with_result(attrs, weight.shape()))[0]};
}

std::vector<Tensor> gradient_of_weight(const GradientArgs& args) {
  const Tensor x = args.in[0], dy = args.in[1], g = args.out_grad[0];
  const auto& attrs = args.attrs<Conv2dAttrs>();
  return {args.add(kConv2dInputGrad, {dy, g}, with_result(attrs, x.shape()))[0],
          args.add(kConv2d, {x, g}, with_result(attrs, {}))[0]};
}

// Of one multiply-add for each tap of each result, those in the padding included.
double flops_of(const Shape& weight, const Shape& y) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(weight.elements(1, 4));
}
double conv2d_flops(const FlopsArgs& args) { return flops_of(args.in[1].shape, args.out[0].shape); }
double conv2d_input_grad_flops(const FlopsArgs& args) { return flops_of(args.in[1].shape, args.in[0].shape); }
double conv2d_weight_grad_flops(const FlopsArgs& args) { return flops_of(args.out[0].shape, args.in[1].shape); }

// Scale and bias are fp32, as normalization folds them; the filters are too where the device reads parameters as such.
StorageRule conv2d_storage(const Node& node) {
  const auto& attrs = node.attrs.as<Conv2dAttrs>();
  StorageRule rule{.in = {Storage::kReduced, Storage::kReduced}, .out = {Storage::kReduced}};
  for (const bool has_row : {attrs.scale, attrs.bias})
    if (has_row) rule.in.push_back(Storage::kF32);
  if (attrs.residual) rule.in.push_back(Storage::kReduced);
  return rule;
}

}  // namespace

const OpDef kConv2d{.name = "conv2d",
                    .infer = infer_conv2d,
                    .gradient = conv2d_gradient,
                    .storage = conv2d_storage,
                    .product = ProductKind::kMatrix,
                    .with_precision = set_precision<Conv2dAttrs>,
                    .by_gpu_library = true,
                    .flops = conv2d_flops};
const OpDef kConv2dInputGrad{.name = "conv2d_input_grad",
                             .infer = infer_conv2d_input_grad,
                             .gradient = gradient_of_input,
                             .storage = reduced<0b11, 0b1>,
                             .product = ProductKind::kMatrix,
                             .with_precision = set_precision<Conv2dAttrs>,
                             .by_gpu_library = true,
                             .flops = conv2d_input_grad_flops};
const OpDef kConv2dWeightGrad{.name = "conv2d_weight_grad",
                              .infer = infer_conv2d_weight_grad,
                              .gradient = gradient_of_weight,
                              .storage = reduced<0b11, 0b0>,
                              .product = ProductKind::kMatrix,
                              .with_precision = set_precision<Conv2dAttrs>,
                              .by_gpu_library = true,
                              .flops = conv2d_weight_grad_flops};

ConvolutionSizes conv2d_sizes(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& attrs) {
  return {.images = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .filters = weight[0],
          .rows = weight[1],
          .columns = weight[2],
          .out_height = y[1],
          .out_width = y[2],
          .stride = attrs.stride,
          .padding = attrs.padding,
          .dilation = attrs.dilation,
          .groups = attrs.groups};
}

Tensor conv2d(At x, Tensor weight, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  return op_result(kConv2d, x, {weight}, Conv2dAttrs{stride, padding, dilation, groups, {}});
}

Tensor conv2d_transposed(At y, Tensor weight, const Shape& result, int64_t stride, int64_t padding, int64_t dilation,
                         int64_t groups) {
  return op_result(kConv2dInputGrad, y, {weight}, Conv2dAttrs{stride, padding, dilation, groups, result});
}

}  // namespace linnet

#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

Shape layer_norm_rows_shape(Shape shape) {
  shape.set(-1, 1);
  return shape;
}

size_t parameter_count(const LayerNormAttrs& attrs) { return size_t{attrs.has_weight} + attrs.has_bias; }

std::vector<TensorType> infer_layer_norm(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LayerNormAttrs>();
  expect_inputs(args, 1 + parameter_count(attrs));
  const TensorType& x = args.in[0];
  expect(x.shape.rank() >= 1 && is_float(x.dtype), "got " + x.text());
  expect_norm_parameters(attrs, x, args.in.subspan(1));
  const TensorType row{full_type(x.dtype), layer_norm_rows_shape(x.shape)};
  return {x, row, row};
}

std::vector<TensorType> infer_layer_norm_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LayerNormAttrs>();
  expect_inputs(args, 4u + attrs.has_weight);
  const TensorType& x = args.in[1];
  expect(args.in[0] == x, "got " + args.in[0].text() + " and " + x.text());
  std::vector<TensorType> out{x};
  out.resize(1 + parameter_count(attrs), TensorType{full_type(x.dtype), {x.shape[-1]}});
  return out;
}

std::vector<Tensor> layer_norm_gradient(const GradientArgs& args) {
  std::vector<Tensor> in{args.out_grad[0], args.in[0], args.out[1], args.out[2]};
  if (args.node.attrs.as<LayerNormAttrs>().has_weight) in.push_back(args.in[1]);
  return args.graph.add(kLayerNormGrad, in, args.node.attrs, args.node.where);
}

std::vector<Tensor> decompose_layer_norm(const DecomposeArgs& args) {
  const auto& attrs = args.node.attrs.as<LayerNormAttrs>();
  const Tensor x = args.in[0];
  const Shape row = layer_norm_rows_shape(x.shape());
  const double scale = 1.0 / static_cast<double>(x.dim(-1));
  const Tensor mean = sum_to(x, row) * (attrs.centered ? scale : 0.0);
  const Tensor centered = attrs.centered ? x - mean : x;
  const Tensor rstd = rsqrt(sum_to(square(centered), row) * scale + attrs.epsilon);
  Tensor y = centered * rstd;
  if (attrs.has_weight) y = y * args.in[1];
  if (attrs.has_bias) y = y + args.in.back();
  return {y, mean, rstd};
}

Tensor norm(At x, Tensor weight, Tensor bias, const LayerNormAttrs& attrs) {
  std::vector<Tensor> in{x.value};
  if (attrs.has_weight) in.push_back(weight);
  if (attrs.has_bias) in.push_back(bias);
  return graph_of(x)->add(kLayerNorm, in, attrs, x.where)[0];
}

}  // namespace

const OpDef kLayerNorm{.name = "layer_norm",
                       .infer = infer_layer_norm,
                       .gradient = layer_norm_gradient,
                       .decompose = decompose_layer_norm,
                       .storage = reduced<0b1, 0b1>,
                       .cheap = true};
const OpDef kLayerNormGrad{.name = "layer_norm_grad", .infer = infer_layer_norm_grad, .storage = reduced<0b11, 0b1>};

void expect_norm_parameters(const LayerNormAttrs& attrs, const TensorType& x, std::span<const TensorType> parameters) {
  const TensorType expected{full_type(x.dtype), {x.shape[-1]}};
  for (size_t i = 0; i < parameter_count(attrs); ++i)
    expect(parameters[i] == expected,
           "got " + x.text() + " with " + (i == 0 && attrs.has_weight ? "weight " : "bias ") + parameters[i].text());
}

Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  return norm(x, weight, bias, {.epsilon = epsilon, .has_weight = weight.defined(), .has_bias = bias.defined()});
}

Tensor rms_norm(At x, Tensor weight, double epsilon) {
  return norm(x, weight, {},
              {.epsilon = epsilon, .centered = false, .has_weight = weight.defined(), .has_bias = false});
}

}  // namespace linnet

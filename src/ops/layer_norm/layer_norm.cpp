#include "ops/layer_norm/layer_norm.h"

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

namespace linnet {
namespace {

Shape rows_shape(Shape shape) {
  shape.set(-1, 1);
  return shape;
}

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 3);
  const TensorType& x = args.in[0];
  expect(x.shape.rank() >= 1 && is_float(x.dtype), "got " + x.text());
  for (int i : {1, 2})
    expect(args.in[static_cast<size_t>(i)] == TensorType{x.dtype, {x.shape[-1]}},
           "got " + x.text() + " with " + (i == 1 ? "weight " : "bias ") + args.in[static_cast<size_t>(i)].text());
  const TensorType row{x.dtype, rows_shape(x.shape)};
  return {x, row, row};
}

// dy, x, weight, mean, rstd -> dx, dweight, dbias
std::vector<TensorType> infer_grad(const InferArgs& args) {
  expect_inputs(args, 5);
  expect(args.in[0] == args.in[1], "got " + args.in[0].text() + " and " + args.in[1].text());
  return {args.in[1], args.in[2], args.in[2]};
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  return args.graph.add(kLayerNormGrad, std::array{args.out_grad[0], args.in[0], args.in[1], args.out[1], args.out[2]},
                        args.node.attrs, args.node.where);
}

std::vector<Tensor> decompose(const DecomposeArgs& args) {
  const Tensor x = args.in[0];
  const Shape row = rows_shape(x.shape());
  const double scale = 1.0 / static_cast<double>(x.dim(-1));
  const Tensor mean = sum_to(x, row) * scale;
  const Tensor centred = x - mean;
  const Tensor rstd = rsqrt(sum_to(square(centred), row) * scale + args.node.attrs.as<LayerNormAttrs>().epsilon);
  return {centred * rstd * args.in[1] + args.in[2], mean, rstd};
}

}  // namespace

const OpDef kLayerNorm{
    .name = "layer_norm", .infer = infer, .gradient = gradient, .decompose = decompose, .cheap = true};
const OpDef kLayerNormGrad{.name = "layer_norm_grad", .infer = infer_grad};

Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  return x.value.graph->add(kLayerNorm, std::array{x.value, weight, bias}, LayerNormAttrs{epsilon}, x.where)[0];
}

}  // namespace linnet

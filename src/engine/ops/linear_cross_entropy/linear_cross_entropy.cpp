#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

void linear_cross_entropy_expect_operands(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  const bool bias = attrs.bias;
  const TensorType &hidden = args.in[0], &targets = args.in[2];
  if (attrs.packed) expect_packed(args.in[1], attrs.weight);
  const TensorType weight = attrs.packed ? TensorType{hidden.dtype, attrs.weight.weight.shape} : args.in[1];
  const std::string both = "got " + hidden.text() + " and weight " + weight.text();
  expect(is_float(hidden.dtype) && hidden.dtype == weight.dtype && hidden.shape.rank() >= 1, both);
  expect(weight.shape.rank() == 2 && weight.shape[1] == hidden.shape[-1], both, ", expected [V, D]");
  const Shape rows(hidden.shape.sizes().first(static_cast<size_t>(hidden.shape.rank() - 1)));
  expect(targets == TensorType{DType::kI32, rows}, "got ", hidden, " and targets ", targets);
  if (bias)
    expect(args.in[3] == TensorType{weight.dtype, {weight.shape[0]}}, "got weight ", weight, " and bias ", args.in[3]);
}

std::vector<TensorType> infer_linear_cross_entropy(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  expect_inputs(args, 3 + attrs.bias);
  linear_cross_entropy_expect_operands(args);
  return {{args.in[0].dtype, {}}};
}

std::vector<TensorType> infer_linear_cross_entropy_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LinearCrossEntropyAttrs>();
  expect_inputs(args, 4 + attrs.bias + attrs.accumulate);
  linear_cross_entropy_expect_operands(args);
  expect(attrs.weight_gradient || !attrs.accumulate, "a gradient of a weight that is frozen");
  const TensorType scalar{args.in[0].dtype, {}}, dloss = args.in[3 + attrs.bias];
  expect(dloss == scalar, "got a gradient of type ", dloss);
  const TensorType weight{args.in[0].dtype, attrs.weight_shape(args.in[1])};
  if (attrs.accumulate) expect(args.in.back() == weight, "accumulator of type ", args.in.back());
  std::vector<TensorType> out{args.in[0]};
  if (attrs.weight_gradient) out.push_back(weight);
  if (attrs.bias) out.push_back(args.in[3]);
  if (attrs.loss) out.push_back(scalar);
  return out;
}

// With p = dloss * (softmax(x) - (1 - s) * onehot(target) - s / V), rows left out being 0:
//   dhidden = p weight,  dweight = p^T hidden,  dbias = sum of p's rows
std::vector<Tensor> linear_cross_entropy_gradient(const GradientArgs& args) {
  std::vector<Tensor> in(args.in.begin(), args.in.end());
  in.push_back(args.out_grad[0]);
  auto attrs = args.attrs<LinearCrossEntropyAttrs>();
  attrs.weight_gradient = args.wanted[1] != 0;
  const auto out = args.graph.add(kLinearCrossEntropyGrad, in, attrs, args.node.where);
  std::vector<Tensor> gradients{out[0], attrs.weight_gradient ? out[1] : Tensor{}, Tensor{}};
  if (attrs.bias) gradients.push_back(out.back());
  return gradients;
}

std::vector<Tensor> decompose_linear_cross_entropy(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  const Tensor weight =
      attrs.packed ? dequantize(args.in[1], attrs.weight.packed(), args.in[0].type().dtype) : args.in[1];
  Tensor logits = matmul(args.in[0], weight, false, true);
  if (attrs.bias) logits = logits + args.in[3];
  return {cross_entropy_sum(logits, args.in[2], attrs.label_smoothing)};
}

// A chunk's part of dhidden is written when the hidden states there have been read for the last time.
bool linear_cross_entropy_may_overwrite(const Node& node, int output, int input) {
  if (output == 0) return input == 0;
  return output == 1 && node.attrs.as<LinearCrossEntropyAttrs>().accumulate &&
         input + 1 == static_cast<int>(node.in.size());
}

double product_flops(const FlopsArgs& args) {
  const Shape& weight = args.attrs<LinearCrossEntropyAttrs>().weight_shape(args.in[1]);
  return 2.0 * static_cast<double>(args.in[2].shape.elements()) * static_cast<double>(weight.elements());
}

double grad_flops(const FlopsArgs& args) {
  const auto& attrs = args.attrs<LinearCrossEntropyAttrs>();
  return (1 + attrs.loss + attrs.weight_gradient) * product_flops(args);
}

}  // namespace

const OpDef kLinearCrossEntropy{.name = "linear_cross_entropy",
                                .infer = infer_linear_cross_entropy,
                                .gradient = linear_cross_entropy_gradient,
                                .decompose = decompose_linear_cross_entropy,
                                .storage = reduced<0b11, 0>,
                                .product = ProductKind::kMatrix,
                                .with_precision = set_precision<LinearCrossEntropyAttrs>,
                                .by_gpu_library = true,
                                .flops = product_flops};
const OpDef kLinearCrossEntropyGrad{.name = "linear_cross_entropy_grad",
                                    .infer = infer_linear_cross_entropy_grad,
                                    .may_overwrite = linear_cross_entropy_may_overwrite,
                                    .storage = reduced<0b11, 0b1>,
                                    .product = ProductKind::kMatrix,
                                    .with_precision = set_precision<LinearCrossEntropyAttrs>,
                                    .by_gpu_library = true,
                                    .flops = grad_flops};

Tensor linear_cross_entropy_sum(At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets,
                                double label_smoothing) {
  std::vector<Tensor> in{hidden.value, weight, targets};
  if (bias) in.push_back(*bias);
  return graph_of(hidden)->add_one(
      kLinearCrossEntropy, in, LinearCrossEntropyAttrs{.label_smoothing = label_smoothing, .bias = bias.has_value()},
      hidden.where);
}

}  // namespace linnet

#include "engine/ops/fake_quantize/fake_quantize.h"
#include <array>
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {
namespace {

void fake_quantize_expect_operands(const TensorType& x, const TensorType& step) {
  expect(is_float(x.dtype) && x.shape.rank() >= 1, "got ", x);
  const TensorType wanted{x.dtype, {1}};
  expect(step == wanted, "got a step ", step, ", expected ", wanted);
}

std::vector<TensorType> infer_fake_quantize(const InferArgs& args) {
  expect_inputs(args, 2);
  fake_quantize_expect_operands(args.in[0], args.in[1]);
  return {args.in[0]};
}

// x, step, dy: dx, ds.
std::vector<TensorType> infer_gradient(const InferArgs& args) {
  expect_inputs(args, 3);
  fake_quantize_expect_operands(args.in[0], args.in[1]);
  expect(args.in[2] == args.in[0], "got a gradient ", args.in[2], ", expected ", args.in[0]);
  return {args.in[0], args.in[1]};
}

std::vector<Tensor> fake_quantize_gradient(const GradientArgs& args) {
  const std::array operands{args.in[0], args.in[1], args.out_grad[0]};
  return args.graph.add(kFakeQuantizeGrad, operands, {}, args.node.where);
}

std::vector<TensorType> infer_weight(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& w = args.in[0];
  expect(is_float(w.dtype) && w.shape.rank() == 2, "got ", w, ", expected a matrix");
  expect(w.shape[1] <= PackedShape::kMostColumns, "got ", w);
  return {w};
}

std::vector<Tensor> pass_through(const GradientArgs& args) { return {args.out_grad[0]}; }

}  // namespace

// Of the results only dx lies like an operand, element by element.
const OpDef kFakeQuantize{.name = "fake_quantize",
                          .infer = infer_fake_quantize,
                          .gradient = fake_quantize_gradient,
                          .may_overwrite = [](const Node&, int, int input) { return input == 0; },
                          .cheap = true};

const OpDef kFakeQuantizeGrad{
    .name = "fake_quantize_grad", .infer = infer_gradient, .may_overwrite = [](const Node&, int output, int input) {
      return output == 0 && input != 1;
    }};

const OpDef kRoundWeight{.name = "round_weight",
                         .infer = infer_weight,
                         .gradient = pass_through,
                         .may_overwrite = [](const Node&, int, int) { return true; }};

Tensor fake_quantize(At x, Tensor step) { return op_result(kFakeQuantize, x, {step}); }

Tensor round_weight(At w) { return op_result(kRoundWeight, w); }

}  // namespace linnet

#include "engine/ops/optimizer/optimizer.h"
#include <array>
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

int state_count(const OptimizerAttrs& attrs) {
  return (attrs.kind == OptimizerAttrs::Kind::kAdam ? 3 : 2) + (attrs.ema_decay > 0 ? 1 : 0);
}

// parameters, moment1, [moment2], [ema], gradient, sum of squares, count, control -> the states
std::vector<TensorType> infer_optimizer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<OptimizerAttrs>();
  expect(attrs.kind <= OptimizerAttrs::Kind::kLion, "got an optimizer that has ops of its own");
  const size_t states = static_cast<size_t>(state_count(attrs));
  expect_inputs(args, states + 4);
  for (size_t i = 1; i <= states; ++i)
    expect(args.in[i] == args.in[0], "got parameters ", args.in[0], " beside ", args.in[i]);
  expect(args.in.back().shape == Shape{2}, "got control ", args.in.back(), ", expected [2]");
  expect(attrs.decay_count >= 0 && attrs.decay_count <= args.in[0].shape.elements(),
         "decay_count beyond the parameters");
  return std::vector<TensorType>(states, args.in[0]);
}

std::vector<TensorType> infer_squares(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(is_float(args.in[0].dtype), "got ", args.in[0]);
  return {{args.in[0].dtype, {}}};
}

// sum of squares, count, control -> scale, finite, ema_rest
std::vector<TensorType> infer_factors(const InferArgs& args) {
  expect_inputs(args, 3);
  expect(args.in[2].shape == Shape{2}, "got control ", args.in[2], ", expected [2]");
  return std::vector<TensorType>(3, args.in[0]);
}

}  // namespace

const OpDef kOptimizerStep{.name = "optimizer_step",
                           .infer = infer_optimizer,
                           .may_overwrite = [](const Node&, int output, int input) { return output == input; }};
const OpDef kSumOfSquares{
    .name = "sum_of_squares", .infer = infer_squares, .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {args.in[0] * (args.out_grad[0] * 2.0)};
    }};
const OpDef kUpdateFactors{.name = "update_factors", .infer = infer_factors};

std::span<const char* const> enum_names(OptimizerAttrs::Kind) {
  static constexpr std::array kNames{"adam", "sgd", "lion", "adam8bit", "muon", "adafactor"};
  return kNames;
}

OptimizerState optimizer_step(const OptimizerState& state, At gradient, Tensor squares, Tensor count, Tensor control,
                              const OptimizerAttrs& attrs) {
  const bool adam = attrs.kind == OptimizerAttrs::Kind::kAdam, ema = attrs.ema_decay > 0;
  std::vector<Tensor> in{state.parameters, state.moment1};
  if (adam) in.push_back(state.moment2);
  if (ema) in.push_back(state.ema);
  in.insert(in.end(), {gradient.value, squares, count, control});
  const std::vector<Tensor> out = graph_of(gradient)->add(kOptimizerStep, in, attrs, gradient.where);
  return {out[0], out[1], adam ? out[2] : Tensor{}, ema ? out.back() : Tensor{}};
}

Tensor sum_of_squares(At x) { return op_result(kSumOfSquares, x); }

UpdateFactors update_factors(At squares, Tensor count, Tensor control, const OptimizerAttrs& attrs) {
  const std::vector<Tensor> out = op_results(kUpdateFactors, squares, {count, control}, attrs);
  return {out[0], out[1], out[2]};
}

}  // namespace linnet

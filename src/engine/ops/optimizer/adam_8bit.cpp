#include "engine/ops/optimizer/adam_8bit.h"

#include "engine/kernels/optimizer_8bit.h"
#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

enum Operand : size_t { kParameters, kCodes1, kScales1, kCodes2, kScales2, kEma };

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<OptimizerAttrs>();
  const size_t states = kEma + (attrs.ema_decay > 0 ? 1 : 0);
  expect_inputs(args, states + 4);
  const TensorType& parameters = args.in[kParameters];
  const int64_t count = parameters.shape.elements();
  expect(parameters.shape.rank() == 1 && is_float(parameters.dtype), "got parameters " + parameters.text());
  for (const Operand codes : {kCodes1, kCodes2})
    expect(args.in[codes] == moment_codes_type(count), "got codes " + args.in[codes].text());
  for (const Operand scales : {kScales1, kScales2})
    expect(args.in[scales] == moment_scales_type(count, parameters.dtype), "got scales " + args.in[scales].text());
  if (attrs.ema_decay > 0) expect(args.in[kEma] == parameters, "got average " + args.in[kEma].text());
  expect(args.in[states] == parameters, "got gradient " + args.in[states].text());
  expect(args.in.back().shape == Shape{2}, "got control " + args.in.back().text() + ", expected [2]");
  return {args.in.begin(), args.in.begin() + static_cast<std::ptrdiff_t>(states)};
}

}  // namespace

const OpDef kAdam8bitStep{.name = "adam_8bit_step",
                          .infer = infer,
                          .may_overwrite = [](const Node&, int output, int input) { return output == input; }};

TensorType moment_codes_type(int64_t count) { return {DType::kU8, {count}}; }
TensorType moment_scales_type(int64_t count, DType dtype) { return {dtype, {moment_blocks(count)}}; }

Adam8bitState adam_8bit_step(const Adam8bitState& s, At gradient, Tensor squares, Tensor count, Tensor control,
                             const OptimizerAttrs& attrs) {
  const bool ema = attrs.ema_decay > 0;
  std::vector<Tensor> in{s.parameters, s.codes1, s.scales1, s.codes2, s.scales2};
  if (ema) in.push_back(s.ema);
  in.insert(in.end(), {gradient.value, squares, count, control});
  const std::vector<Tensor> out = graph_of(gradient)->add(kAdam8bitStep, in, attrs, gradient.where);
  return {out[kParameters], out[kCodes1], out[kScales1], out[kCodes2], out[kScales2], ema ? out[kEma] : Tensor{}};
}

}  // namespace linnet

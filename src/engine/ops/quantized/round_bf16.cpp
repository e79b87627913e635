#include "engine/ops/quantized/round_bf16.h"

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& weight = args.attrs.as<RoundBf16Attrs>().weight;
  expect(weight.format == WeightFormat::kBf16 && weight.weight.shape.rank() == 2, "a weight of another format");
  const TensorType wanted{weight.weight.dtype, {weight.weight.shape.elements()}};
  expect(args.in[0] == wanted, "got " + args.in[0].text() + ", expected " + wanted.text());
  expect(args.in[1] == TensorType{DType::kI32, {4}}, "got random numbers of type " + args.in[1].text());
  return {{DType::kU8, {static_cast<int64_t>(weight.packed().bytes())}}};
}

}  // namespace

const OpDef kRoundBf16{.name = "round_bf16", .infer = infer};

Tensor round_bf16(At x, Tensor random, const PackedShape& shape, uint64_t site) {
  const RoundBf16Attrs attrs{
      .weight = {.format = shape.format, .weight = {x.value.type().dtype, {shape.rows, shape.columns}}}, .site = site};
  return graph_of(x)->add_one(kRoundBf16, std::array{x.value, random}, attrs, x.where);
}

}  // namespace linnet

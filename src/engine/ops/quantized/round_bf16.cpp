#include "engine/kernels/quantized/round_bf16.h"
#include <algorithm>
#include <vector>
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/quantized/quantized.h"

namespace linnet {

namespace {

std::vector<TensorType> infer_round_bf16(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& weight = args.attrs.as<RoundBf16Attrs>().weight;
  expect(weight.format == WeightFormat::kBf16 && weight.weight.shape.rank() == 2, "a weight of another format");
  const TensorType wanted{weight.weight.dtype, {weight.weight.shape.elements()}};
  expect(args.in[0] == wanted, "got ", args.in[0], ", expected ", wanted);
  expect(args.in[1] == TensorType{DType::kI32, {4}}, "got random numbers of type ", args.in[1]);
  return {{DType::kU8, {static_cast<int64_t>(weight.packed().bytes())}}};
}

// The result, whose end behind the last number is padding.
uint16_t* result(const KernelArgs& args) {
  auto* packed = args.out[0].as<uint8_t>();
  const int64_t used = args.in[0].elements() * static_cast<int64_t>(sizeof(uint16_t));
  std::fill(packed + used, packed + args.out[0].elements(), uint8_t{0});
  return reinterpret_cast<uint16_t*>(packed);
}

uint64_t key_of(const KernelArgs& args) {
  return dropout_key(args.in[1].as<int32_t>(), args.attrs<RoundBf16Attrs>().site);
}

void run_round_bf16(const KernelArgs& args) {
  round_to_bf16_stochastic(args.in[0].elements(), args.in[0].as<float>(), result(args), key_of(args), args.pool);
}

void run_round_bf16_reference(const KernelArgs& args) {
  const int64_t count = args.in[0].elements();
  std::vector<uint16_t> random(static_cast<size_t>(count + 7) / 8 * 8);
  philox_values16(key_of(args), 0, static_cast<int64_t>(random.size()) / 8, kBf16Rounding, 0, 0, random.data());
  uint16_t* y = result(args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i)
      y[i] = round_to_bf16_by(static_cast<float>(args.in[0].as<T>()[i]), random[static_cast<size_t>(i)]);
  });
}

}  // namespace

const OpDef kRoundBf16{.name = "round_bf16", .infer = infer_round_bf16};

Tensor round_bf16(At x, Tensor random, const PackedShape& shape, uint64_t site) {
  const RoundBf16Attrs attrs{
      .weight = {.format = shape.format, .weight = {x.value.type().dtype, {shape.rows, shape.columns}}}, .site = site};
  return op_result(kRoundBf16, x, {random}, attrs);
}

LINNET_KERNELS(round_bf16, {"simd", all_f32, nullptr, run_round_bf16},
               {"reference", nullptr, nullptr, run_round_bf16_reference})

}  // namespace linnet

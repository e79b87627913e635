#include "engine/ops/dropout/dropout.h"
#include <array>
#include "base/hash.h"

namespace linnet {

void expect_random(const TensorType& random) {
  expect(random == TensorType{DType::kI32, {4}}, "got random state ", random, ", expected i32[4]");
}

namespace {

std::vector<TensorType> infer_dropout(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& attrs = args.attrs.as<DropoutAttrs>();
  expect(attrs.probability >= 0 && attrs.probability < 1, "got probability ", attrs.probability, ", expected [0, 1)");
  expect_random(args.in[1]);
  expect(is_float(args.in[0].dtype) && args.in[0].shape.rank() >= 1, "got ", args.in[0]);
  expect(attrs.layout == DropoutLayout::kDense || args.in[0].shape.rank() == 4, "got ", args.in[0],
         ", expected [B, H, Tq, Tk]");
  const bool fits = attrs.is_whole() || (attrs.layout == DropoutLayout::kDense && args.in[0].shape.rank() >= 2 &&
                                         attrs.all_columns % 8 == 0 && attrs.first_column % 8 == 0 &&
                                         attrs.first_column + args.in[0].shape[-1] <= attrs.all_columns);
  expect(fits, "got ", args.in[0], " as columns from ", attrs.first_column, " on of ", attrs.all_columns);
  return {args.in[0]};
}

// The mask is linear: the gradient passes through the same one.
std::vector<Tensor> dropout_gradient(const GradientArgs& args) {
  return {args.add(kDropout, {args.out_grad[0], args.in[1]})[0], Tensor{}};
}

std::vector<TensorType> infer_random_uniform(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& type = args.attrs.as<RandomUniformAttrs>().type;
  expect_random(args.in[0]);
  expect(type.dtype == DType::kF32 || type.dtype == DType::kF64, "got ", type, ", expected a float type");
  return {type};
}

}  // namespace

const OpDef kDropout{.name = "dropout",
                     .infer = infer_dropout,
                     .gradient = dropout_gradient,
                     .may_overwrite = overwrites_first,
                     .storage = reduced<0b1, 0b1>};
const OpDef kRandomUniform{.name = "random_uniform", .infer = infer_random_uniform, .gradient = no_gradient};

std::span<const char* const> enum_names(DropoutLayout) {
  static constexpr std::array kNames{"dense", "attention"};
  return kNames;
}

Tensor dropout(At x, Tensor random, float probability, uint64_t site, DropoutLayout layout) {
  if (probability == 0) return x.value;
  return op_result(kDropout, x, {random}, DropoutAttrs{probability, site, layout});
}

Tensor random_uniform(At random, const TensorType& type, uint64_t site) {
  return op_result(kRandomUniform, random, {}, RandomUniformAttrs{type, site});
}

uint64_t dropout_site(std::string_view module_path, std::string_view name) {
  return mix64(fnv1a(name, fnv1a("/", fnv1a(module_path))));
}

uint64_t dropout_key(const int32_t* random, uint64_t site) {
  const auto word = [&](int i) { return static_cast<uint64_t>(static_cast<uint32_t>(random[i])); };
  const uint64_t seed = word(0) | word(1) << 32, time = word(2) | word(3) << 32;
  return mix64(mix64(seed ^ site) + mix64(time + 0x9e3779b97f4a7c15u));
}

}  // namespace linnet

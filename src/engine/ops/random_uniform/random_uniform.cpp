#include "engine/ops/random_uniform/random_uniform.h"

#include <array>

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& type = args.attrs.as<RandomUniformAttrs>().type;
  expect(args.in[0] == TensorType{DType::kI32, {4}}, "got random state " + args.in[0].text() + ", expected i32[4]");
  expect(type.dtype == DType::kF32 || type.dtype == DType::kF64, "got " + type.text() + ", expected a float type");
  return {type};
}

}  // namespace

const OpDef kRandomUniform{.name = "random_uniform",
                           .infer = infer,
                           .gradient = [](const GradientArgs&) -> std::vector<Tensor> { return {Tensor{}}; }};

Tensor random_uniform(At random, const TensorType& type, uint64_t site) {
  return graph_of(random)->add_one(kRandomUniform, std::array{random.value}, RandomUniformAttrs{type, site},
                                   random.where);
}

}  // namespace linnet

#include "engine/ops/random_uniform/random_uniform.h"
#include <array>
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/graph_of.h"

namespace linnet {

namespace {

std::vector<TensorType> infer_random_uniform(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& type = args.attrs.as<RandomUniformAttrs>().type;
  expect(args.in[0] == TensorType{DType::kI32, {4}}, "got random state " + args.in[0].text() + ", expected i32[4]");
  expect(type.dtype == DType::kF32 || type.dtype == DType::kF64, "got " + type.text() + ", expected a float type");
  return {type};
}

void run_random_uniform(const KernelArgs& args) {
  constexpr int64_t kWords = 4;
  const uint64_t key = dropout_key(args.in[0].as<int32_t>(), args.node.attrs.as<RandomUniformAttrs>().site);
  const int64_t count = args.out[0].elements();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* to = args.out[0].as<T>();
    for_ranges(args.pool, (count + kWords - 1) / kWords, 16 * kWords, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto words =
            philox4x32({static_cast<uint32_t>(block), kUniformDraw, static_cast<uint32_t>(block >> 32), 0}, key);
        for (int64_t i = block * kWords; i < std::min(count, (block + 1) * kWords); ++i)
          to[i] = static_cast<T>(words[static_cast<size_t>(i % kWords)] >> 8) / static_cast<T>(1 << 24);
      }
    });
  });
}

}  // namespace

const OpDef kRandomUniform{.name = "random_uniform",
                           .infer = infer_random_uniform,
                           .gradient = [](const GradientArgs&) -> std::vector<Tensor> { return {Tensor{}}; }};

Tensor random_uniform(At random, const TensorType& type, uint64_t site) {
  return graph_of(random)->add_one(kRandomUniform, std::array{random.value}, RandomUniformAttrs{type, site},
                                   random.where);
}

LINNET_KERNELS(random_uniform, {"reference", nullptr, nullptr, run_random_uniform})

}  // namespace linnet

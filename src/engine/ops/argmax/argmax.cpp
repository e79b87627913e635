#include "engine/ops/argmax/argmax.h"

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() >= 1 && x.shape[-1] >= 1, "got " + x.text());
  return {{DType::kI32, Shape(x.shape.sizes().first(static_cast<size_t>(x.shape.rank() - 1)))}};
}

}  // namespace

const OpDef kArgmax{.name = "argmax", .infer = infer};

Tensor argmax_last(At x) { return graph_of(x)->add_one(kArgmax, std::array{x.value}, {}, x.where); }

}  // namespace linnet

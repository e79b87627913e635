#include "engine/ops/reduce/reduce.h"
#include <array>
#include "engine/ops/broadcast.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_reduce(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  expect(find_broadcast(attrs.shape, args.in[0].shape).has_value(),
         "cannot reduce " + args.in[0].shape.text() + " to " + attrs.shape.text());
  expect(is_float(args.in[0].dtype), "got " + args.in[0].text() + ", expected a float type");
  return {{args.in[0].dtype, attrs.shape}};
}

std::vector<Tensor> reduce_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], y = args.out[0], dy = args.out_grad[0];
  switch (args.node.attrs.as<ReduceAttrs>().kind) {
    case Reduction::kSum: return {broadcast_to(dy, x.shape())};
    case Reduction::kMax: return {Tensor{}};  // used only to keep exp in range, where its gradient cancels
    case Reduction::kLogSumExp: return {exp(x - y) * dy};
  }
  return {};
}

Tensor reduce(At x, Reduction kind, Shape shape) {
  return graph_of(x)->add_one(kReduce, std::array{x.value}, ReduceAttrs{kind, shape}, x.where);
}

Shape last_to_one(const Tensor& x) {
  Shape shape = x.shape();
  shape.set(-1, 1);
  return shape;
}

}  // namespace

const OpDef kReduce{.name = "reduce", .infer = infer_reduce, .gradient = reduce_gradient, .storage = [](const Node&) {
                      return StorageRule{.rest = Storage::kAny};
                    }};

std::span<const char* const> enum_names(Reduction) {
  static constexpr std::array kNames{"sum", "max", "log_sum_exp"};
  return kNames;
}

Tensor sum_to(At x, Shape shape) { return x.value.shape() == shape ? x.value : reduce(x, Reduction::kSum, shape); }
Tensor max_last(At x) { return reduce(x, Reduction::kMax, last_to_one(x.value)); }
Tensor log_sum_exp_last(At x) { return reduce(x, Reduction::kLogSumExp, last_to_one(x.value)); }

}  // namespace linnet

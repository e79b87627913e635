#include "engine/ops/reduce/reduce.h"
#include <array>
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_reduce(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<ReduceAttrs>();
  expect(find_broadcast(attrs.shape, args.in[0].shape).has_value(), "cannot reduce ", args.in[0].shape, " to ",
         attrs.shape);
  expect(is_float(args.in[0].dtype), "got ", args.in[0], ", expected a float type");
  return {{args.in[0].dtype, attrs.shape}};
}

std::vector<Tensor> reduce_gradient(const GradientArgs& args) {
  const Tensor x = args.in[0], y = args.out[0], dy = args.out_grad[0];
  switch (args.attrs<ReduceAttrs>().kind) {
    case Reduction::kSum: return {broadcast_to(dy, x.shape())};
    case Reduction::kMax: return {Tensor{}};  // used only to keep exp in range, where its gradient cancels
    case Reduction::kLogSumExp: return {exp(x - y) * dy};
  }
  return {};
}

std::vector<TensorType> infer_cumsum(const InferArgs& args) {
  expect_inputs(args, 1);
  const int axis = args.attrs.as<CumsumAttrs>().axis;
  expect(is_float(args.in[0].dtype) && axis >= 0 && axis < args.in[0].shape.rank(), "got ", args.in[0], " and axis ",
         axis);
  return {args.in[0]};
}

std::vector<Tensor> cumsum_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<CumsumAttrs>();
  return {cumsum(args.out_grad[0], attrs.axis, !attrs.reverse)};
}

Tensor reduce(At x, Reduction kind, Shape shape) { return op_result(kReduce, x, {}, ReduceAttrs{kind, shape}); }

}  // namespace

const OpDef kReduce{.name = "reduce", .infer = infer_reduce, .gradient = reduce_gradient, .storage = [](const Node&) {
                      return StorageRule{.rest = Storage::kAny};
                    }};

const OpDef kCumsum{
    .name = "cumsum", .infer = infer_cumsum, .gradient = cumsum_gradient, .may_overwrite = overwrites_first};

std::span<const char* const> enum_names(Reduction) {
  static constexpr std::array kNames{"sum", "max", "log_sum_exp"};
  return kNames;
}

Tensor sum_to(At x, Shape shape) { return x.value.shape() == shape ? x.value : reduce(x, Reduction::kSum, shape); }
Tensor max_last(At x) { return reduce(x, Reduction::kMax, with_size(x.value.shape(), -1, 1)); }
Tensor log_sum_exp_last(At x) { return reduce(x, Reduction::kLogSumExp, with_size(x.value.shape(), -1, 1)); }

Tensor cumsum(At x, int axis, bool reverse) {
  const int from_start = graph_of(x) && axis < 0 ? axis + x.value.shape().rank() : axis;
  return op_result(kCumsum, x, {}, CumsumAttrs{from_start, reverse});
}

}  // namespace linnet

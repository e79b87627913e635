#include "engine/ops/cumsum/cumsum.h"

#include <array>

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 1);
  const int axis = args.attrs.as<CumsumAttrs>().axis;
  expect(is_float(args.in[0].dtype) && axis >= 0 && axis < args.in[0].shape.rank(),
         "got " + args.in[0].text() + " and axis " + std::to_string(axis));
  return {args.in[0]};
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  const auto& attrs = args.node.attrs.as<CumsumAttrs>();
  return {cumsum(args.out_grad[0], attrs.axis, !attrs.reverse)};
}

}  // namespace

const OpDef kCumsum{
    .name = "cumsum", .infer = infer, .gradient = gradient, .may_overwrite = [](const Node&, int, int input) {
      return input == 0;
    }};

Tensor cumsum(At x, int axis, bool reverse) {
  Graph* graph = graph_of(x);
  if (axis < 0) axis += x.value.shape().rank();
  return graph->add_one(kCumsum, std::array{x.value}, CumsumAttrs{axis, reverse}, x.where);
}

}  // namespace linnet

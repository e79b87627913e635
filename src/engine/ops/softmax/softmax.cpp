#include "engine/ops/softmax/softmax.h"

#include "engine/ops/graph_of.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].shape.rank() >= 1 && is_float(args.in[0].dtype), "got " + args.in[0].text());
  return {args.in[0]};
}

std::vector<TensorType> infer_grad(const InferArgs& args) {
  expect_inputs(args, 2);
  expect(args.in[0] == args.in[1], "got " + args.in[0].text() + " and " + args.in[1].text());
  return {args.in[0]};
}

std::vector<Tensor> decompose(const DecomposeArgs& args) {
  const Tensor e = exp(args.in[0] - max_last(args.in[0]));
  Shape row = e.shape();
  row.set(-1, 1);
  return {e / sum_to(e, row)};
}

}  // namespace

const OpDef kSoftmax{
    .name = "softmax",
    .infer = infer,
    .gradient =
        [](const GradientArgs& args) {
          return args.graph.add(kSoftmaxGrad, std::array{args.out_grad[0], args.out[0]}, {}, args.node.where);
        },
    .decompose = decompose,
    .may_overwrite = [](const Node&, int, int) { return true; },
    .storage = reduced<0b1, 0b1>};

// dx = y * (dy - sum(dy * y))
const OpDef kSoftmaxGrad{.name = "softmax_grad", .infer = infer_grad, .storage = reduced<0b11, 0b1>};

Tensor softmax(At x) { return graph_of(x)->add_one(kSoftmax, std::array{x.value}, {}, x.where); }

}  // namespace linnet

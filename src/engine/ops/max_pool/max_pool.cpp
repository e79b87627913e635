#include "engine/ops/max_pool/max_pool.h"

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MaxPoolAttrs>();
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() == 4, "got " + x.text() + ", expected floats [N, H, W, C]");
  expect(attrs.size >= 1 && attrs.size <= 15 && attrs.stride >= 1,
         "window " + std::to_string(attrs.size) + ", stride " + std::to_string(attrs.stride));
  TensorType out = x;
  for (int axis : {1, 2}) {
    expect(x.shape[axis] >= attrs.size, "got " + x.text() + ", smaller than the window " + std::to_string(attrs.size));
    out.shape.set(axis, (x.shape[axis] - attrs.size) / attrs.stride + 1);
  }
  return {out, {DType::kU8, out.shape}};
}

// dy, places -> dx
std::vector<TensorType> infer_grad(const InferArgs& args) {
  expect_inputs(args, 2);
  expect(args.in[1] == TensorType{DType::kU8, args.in[0].shape},
         "got " + args.in[0].text() + " and " + args.in[1].text());
  return {{args.in[0].dtype, args.attrs.as<MaxPoolAttrs>().input}};
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  MaxPoolAttrs attrs = args.node.attrs.as<MaxPoolAttrs>();
  attrs.input = args.in[0].shape();
  return args.graph.add(kMaxPoolGrad, std::array{args.out_grad[0], args.out[1]}, attrs, args.node.where);
}

}  // namespace

const OpDef kMaxPool{.name = "max_pool",
                     .infer = infer,
                     .gradient = gradient,
                     .storage = reduced<0b1, 0b1>};
const OpDef kMaxPoolGrad{
    .name = "max_pool_grad", .infer = infer_grad, .storage = reduced<0b1, 0b1>};

Tensor max_pool(At x, int64_t size, int64_t stride) {
  const MaxPoolAttrs attrs{.size = size, .stride = stride ? stride : size};
  return graph_of(x)->add(kMaxPool, std::array{x.value}, attrs, x.where)[0];
}

}  // namespace linnet

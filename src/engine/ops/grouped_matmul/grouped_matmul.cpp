#include "engine/ops/grouped_matmul/grouped_matmul.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

// Sizes that fit each other: rows of `x` and of the choice.
void expect_rows(const TensorType& x, const TensorType& choice) {
  expect(is_float(x.dtype) && x.shape.rank() == 2 && choice.dtype == DType::kI32 && choice.shape.rank() == 1 &&
             x.shape[0] > 0 && choice.shape[0] % x.shape[0] == 0,
         "got rows ", x, " and choices ", choice);
}

std::vector<TensorType> infer_grouped_matmul(const InferArgs& args) {
  expect_inputs(args, 3);
  const auto& attrs = args.attrs.as<GroupedMatmulAttrs>();
  const TensorType &x = args.in[0], &weights = args.in[1];
  expect_rows(x, args.in[2]);
  expect(
      weights.dtype == x.dtype && weights.shape.rank() == 2 && attrs.groups > 0 && weights.shape[0] % attrs.groups == 0,
      "got weights ", weights, " of ", attrs.groups, " groups");
  const int64_t rows = weights.shape[0] / attrs.groups, columns = weights.shape[1];
  expect(x.shape[1] == (attrs.transposed ? columns : rows), "got ", x, " and weights ", weights);
  return {{x.dtype, {args.in[2].shape[0], attrs.transposed ? rows : columns}}};
}

std::vector<TensorType> infer_grouped_matmul_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<GroupedMatmulAttrs>();
  expect_inputs(args, size_t{3} + attrs.accumulate);
  expect_rows(args.in[0], args.in[2]), expect_rows(args.in[1], args.in[2]);
  const TensorType out{args.in[0].dtype, {attrs.groups * args.in[0].shape[1], args.in[1].shape[1]}};
  expect(args.in[1].dtype == out.dtype, "got ", args.in[0], " and ", args.in[1]);
  if (attrs.accumulate) expect(args.in[3] == out, "accumulator of type ", args.in[3]);
  return {out};
}

std::vector<Tensor> grouped_matmul_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const Tensor x = args.in[0], choice = args.in[2], dy = args.out_grad[0];
  const int64_t rows = x.dim(0), width = x.dim(1), times = choice.dim(0) / rows;
  std::vector<Tensor> gradients(3);
  if (args.wanted[0]) {
    gradients[0] = grouped_matmul(At(dy, args.node.where), args.in[1], choice,
                                  {.groups = attrs.groups, .transposed = !attrs.transposed, .exact = attrs.exact});
    if (times > 1)
      gradients[0] = reshape(sum_to(reshape(gradients[0], {times, rows, width}), {1, rows, width}), {rows, width});
  }
  if (args.wanted[1])
    gradients[1] =
        args.graph.add_one(kGroupedMatmulGrad, std::array{attrs.transposed ? dy : x, attrs.transposed ? x : dy, choice},
                           GroupedMatmulAttrs{.groups = attrs.groups, .exact = attrs.exact}, args.node.where);
  return gradients;
}

// A copy of its weight for each row, unless there is only one weight.
std::vector<Tensor> decompose_grouped_matmul(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<GroupedMatmulAttrs>();
  const Tensor x = args.in[0], weights = args.in[1], choice = args.in[2];
  const int64_t rows = weights.dim(0) / attrs.groups, columns = weights.dim(1), count = choice.dim(0);
  std::vector<Tensor> repeated(static_cast<size_t>(count / x.dim(0)), x);
  const Tensor all = repeated.size() == 1 ? x : concat(x, std::span(repeated).subspan(1), 0);
  if (attrs.groups == 1) return {matmul(all, weights, false, attrs.transposed)};
  const Tensor chosen = embedding(reshape(weights, {attrs.groups, rows * columns}), choice);
  const Tensor product =
      matmul(reshape(all, {count, 1, x.dim(1)}), reshape(chosen, {count, rows, columns}), false, attrs.transposed);
  return {reshape(product, {count, product.dim(2)})};
}

bool grouped_matmul_can_accumulate(const Node& node) { return !node.attrs.as<GroupedMatmulAttrs>().accumulate; }

Attrs grouped_matmul_with_accumulator(const Attrs& old) {
  GroupedMatmulAttrs attrs = old.as<GroupedMatmulAttrs>();
  attrs.accumulate = true;
  return attrs;
}

Attrs with_precision(const Attrs& old, Precision precision) {
  return old.as<GroupedMatmulAttrs>().exact ? old : set_precision<GroupedMatmulAttrs>(old, precision);
}

StorageRule grouped_matmul_storage(const Node& node) {
  if (node.attrs.as<GroupedMatmulAttrs>().exact) return {};
  return {.in = {Storage::kReduced, Storage::kReduced}, .out = {Storage::kAny}};
}

StorageRule grouped_matmul_grad_storage(const Node& node) {
  StorageRule rule = grouped_matmul_storage(node);
  rule.in.resize(3, Storage::kF32);
  if (node.attrs.as<GroupedMatmulAttrs>().accumulate) rule.in.push_back(Storage::kAsResult);
  return rule;
}

Attrs grouped_matmul_with_independent_rows(const Attrs& old) {
  GroupedMatmulAttrs attrs = old.as<GroupedMatmulAttrs>();
  attrs.independent_rows = true;
  return attrs;
}

// Each row is multiplied once.
double grouped_matmul_flops(const FlopsArgs& args) {
  const auto& weights = args.node.op == &kGroupedMatmul ? args.in[1].shape : args.out[0].shape;
  const int64_t choices = args.in[2].shape[0], groups = args.attrs<GroupedMatmulAttrs>().groups;
  return 2.0 * static_cast<double>(choices) * static_cast<double>(weights.elements() / groups);
}

}  // namespace

const OpDef kGroupedMatmul{.name = "grouped_matmul",
                           .infer = infer_grouped_matmul,
                           .gradient = grouped_matmul_gradient,
                           .decompose = decompose_grouped_matmul,
                           .storage = grouped_matmul_storage,
                           .product = ProductKind::kMatrix,
                           .with_precision = with_precision,
                           .with_independent_rows = grouped_matmul_with_independent_rows,
                           .by_gpu_library = true,  // there is no CUDA kernel yet: a GPU refuses it
                           .flops = grouped_matmul_flops};
const OpDef kGroupedMatmulGrad{
    .name = "grouped_matmul_grad",
    .infer = infer_grouped_matmul_grad,
    .may_overwrite = [](const Node& node, int,
                        int input) { return node.attrs.as<GroupedMatmulAttrs>().accumulate && input == 3; },
    .can_accumulate = grouped_matmul_can_accumulate,
    .with_accumulator = grouped_matmul_with_accumulator,
    .storage = grouped_matmul_grad_storage,
    .product = ProductKind::kMatrix,
    .with_precision = with_precision,
    .by_gpu_library = true,
    .flops = grouped_matmul_flops};

Tensor grouped_matmul(At x, Tensor weights, Tensor choice, const GroupedMatmulAttrs& attrs) {
  return op_result(kGroupedMatmul, x, {weights, choice}, attrs);
}

}  // namespace linnet

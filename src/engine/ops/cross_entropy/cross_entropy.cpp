#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_cross_entropy(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &logits = args.in[0], &targets = args.in[1];
  expect(logits.shape.rank() >= 1 && is_float(logits.dtype), "got logits ", logits);
  const Shape rows = leading_axes(logits.shape);
  expect(targets == TensorType{DType::kI32, rows}, "got logits ", logits, " and targets ", targets);
  const DType full = full_type(logits.dtype);
  return {{full, {}}, {full, {rows.elements()}}};
}

// logits, targets, lse, dloss -> dlogits
std::vector<TensorType> infer_cross_entropy_grad(const InferArgs& args) {
  expect_inputs(args, 4);
  return {args.in[0]};
}

std::vector<Tensor> cross_entropy_gradient(const GradientArgs& args) {
  return {args.add(kCrossEntropyGrad, {args.in[0], args.in[1], args.out[1], args.out_grad[0]})[0], Tensor{}};
}

std::vector<TensorType> infer_one_hot(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got ", args.in[0], ", expected i32");
  const auto& [classes, dtype] = args.attrs.as<OneHotAttrs>();
  expect(classes > 0, classes, " classes; there is at least one");
  Shape shape = args.in[0].shape;
  shape.push_back(classes);
  return {{dtype, shape}};
}

// The formula as it stands, rows without a target multiplied away.
std::vector<Tensor> decompose_cross_entropy(const DecomposeArgs& args) {
  const Tensor x = args.in[0];
  const double smoothing = args.attrs<CrossEntropyAttrs>().label_smoothing;
  const int64_t classes = x.dim(-1);
  const Tensor target = one_hot(args.in[1], classes, x.type().dtype), lse = log_sum_exp_last(x);
  const Shape row = lse.shape();
  const Tensor valid = sum_to(target, row), picked = sum_to(target * x, row);
  const Tensor mean = sum_to(x, row) * (1.0 / static_cast<double>(classes));
  const Tensor losses = valid * (lse - picked * (1 - smoothing) - mean * smoothing);
  return {sum_to(losses, {}), reshape(lse, {row.elements()})};
}

std::vector<TensorType> infer_cross_entropy_mask(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &targets = args.in[0], &lengths = args.in[1];
  expect(targets.dtype == DType::kI32 && targets.shape.rank() == 2, "got targets ", targets, ", expected i32 [B, T]");
  expect(lengths == TensorType{DType::kI32, {targets.shape[0]}}, "got lengths ", lengths);
  return {targets};
}

std::vector<TensorType> infer_count(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got ", args.in[0], ", expected i32");
  return {{args.attrs.as<CountAttrs>().dtype, {}}};
}

}  // namespace

const OpDef kCrossEntropy{.name = "cross_entropy",
                          .infer = infer_cross_entropy,
                          .gradient = cross_entropy_gradient,
                          .decompose = decompose_cross_entropy,
                          .storage = reduced<0b1, 0>};
const OpDef kCrossEntropyGrad{.name = "cross_entropy_grad",
                              .infer = infer_cross_entropy_grad,
                              .may_overwrite = overwrites_first,
                              .storage = reduced<0b1, 0b1>};
const OpDef kMaskTargets{.name = "mask_targets", .infer = infer_cross_entropy_mask};
const OpDef kOneHot{.name = "one_hot", .infer = infer_one_hot};
const OpDef kCountTargets{.name = "count_targets", .infer = infer_count};

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing) {
  return op_result(kCrossEntropy, logits, {targets}, CrossEntropyAttrs{label_smoothing});
}

Tensor mask_targets(At targets, Tensor lengths) { return op_result(kMaskTargets, targets, {lengths}); }

Tensor one_hot(At targets, int64_t classes, DType dtype) {
  return op_result(kOneHot, targets, {}, OneHotAttrs{classes, dtype});
}

Tensor count_targets(At targets, DType dtype) { return op_result(kCountTargets, targets, {}, CountAttrs{dtype}); }

}  // namespace linnet

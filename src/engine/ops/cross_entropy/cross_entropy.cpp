#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_cross_entropy(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &logits = args.in[0], &targets = args.in[1];
  expect(logits.shape.rank() >= 1 && is_float(logits.dtype), "got logits " + logits.text());
  const Shape rows(logits.shape.sizes().first(static_cast<size_t>(logits.shape.rank() - 1)));
  expect(targets == TensorType{DType::kI32, rows}, "got logits " + logits.text() + " and targets " + targets.text());
  const DType full = full_type(logits.dtype);
  return {{full, {}}, {full, {rows.elements()}}};
}

// logits, targets, lse, dloss -> dlogits
std::vector<TensorType> infer_cross_entropy_grad(const InferArgs& args) {
  expect_inputs(args, 4);
  return {args.in[0]};
}

std::vector<Tensor> cross_entropy_gradient(const GradientArgs& args) {
  return {args.graph.add_one(kCrossEntropyGrad, std::array{args.in[0], args.in[1], args.out[1], args.out_grad[0]},
                             args.node.attrs, args.node.where),
          Tensor{}};
}

std::vector<TensorType> infer_one_hot(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got " + args.in[0].text() + ", expected i32");
  const auto& [classes, dtype] = args.attrs.as<OneHotAttrs>();
  expect(classes > 0, std::to_string(classes) + " classes; there is at least one");
  TensorType out{dtype, args.in[0].shape};
  out.shape.push_back(classes);
  return {out};
}

// The formula as it stands, rows without a target multiplied away.
std::vector<Tensor> decompose_cross_entropy(const DecomposeArgs& args) {
  const Tensor x = args.in[0];
  const double smoothing = args.node.attrs.as<CrossEntropyAttrs>().label_smoothing;
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
  expect(targets.dtype == DType::kI32 && targets.shape.rank() == 2,
         "got targets " + targets.text() + ", expected i32 [B, T]");
  expect(lengths == TensorType{DType::kI32, {targets.shape[0]}}, "got lengths " + lengths.text());
  return {targets};
}

std::vector<TensorType> infer_count(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got " + args.in[0].text() + ", expected i32");
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
                              .may_overwrite = [](const Node&, int, int input) { return input == 0; },
                              .storage = reduced<0b1, 0b1>};
const OpDef kMaskTargets{.name = "mask_targets", .infer = infer_cross_entropy_mask};
const OpDef kOneHot{.name = "one_hot", .infer = infer_one_hot};
const OpDef kCountTargets{.name = "count_targets", .infer = infer_count};

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing) {
  return graph_of(logits)->add(kCrossEntropy, std::array{logits.value, targets}, CrossEntropyAttrs{label_smoothing},
                               logits.where)[0];
}

Tensor mask_targets(At targets, Tensor lengths) {
  return graph_of(targets)->add_one(kMaskTargets, std::array{targets.value, lengths}, {}, targets.where);
}

Tensor one_hot(At targets, int64_t classes, DType dtype) {
  return graph_of(targets)->add_one(kOneHot, std::array{targets.value}, OneHotAttrs{classes, dtype}, targets.where);
}

Tensor count_targets(At targets, DType dtype) {
  return graph_of(targets)->add_one(kCountTargets, std::array{targets.value}, CountAttrs{dtype}, targets.where);
}

}  // namespace linnet

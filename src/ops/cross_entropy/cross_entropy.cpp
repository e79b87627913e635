#include "ops/cross_entropy/cross_entropy.h"

namespace linnet {
namespace {

struct CountAttrs {
  DType dtype;
  std::string text() const { return dtype_name(dtype); }
};

std::vector<TensorType> infer(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &logits = args.in[0], &targets = args.in[1];
  expect(logits.shape.rank() >= 1 && is_float(logits.dtype), "got logits " + logits.text());
  const Shape rows(logits.shape.sizes().first(static_cast<size_t>(logits.shape.rank() - 1)));
  expect(targets == TensorType{DType::kI32, rows}, "got logits " + logits.text() + " and targets " + targets.text());
  return {{logits.dtype, {}}, {logits.dtype, {rows.elements()}}};
}

// logits, targets, lse, dloss -> dlogits
std::vector<TensorType> infer_grad(const InferArgs& args) {
  expect_inputs(args, 4);
  return {args.in[0]};
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  return {args.graph.add_one(kCrossEntropyGrad, std::array{args.in[0], args.in[1], args.out[1], args.out_grad[0]},
                             args.node.attrs, args.node.where),
          Tensor{}};
}

std::vector<TensorType> infer_mask(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType &targets = args.in[0], &lengths = args.in[1];
  expect(targets.dtype == DType::kI32 && targets.shape.rank() == 2, "got targets " + targets.text() + ", expected i32 [B, T]");
  expect(lengths == TensorType{DType::kI32, {targets.shape[0]}}, "got lengths " + lengths.text());
  return {targets};
}

std::vector<TensorType> infer_count(const InferArgs& args) {
  expect_inputs(args, 1);
  expect(args.in[0].dtype == DType::kI32, "got " + args.in[0].text() + ", expected i32");
  return {{args.attrs.as<CountAttrs>().dtype, {}}};
}

}  // namespace

const OpDef kCrossEntropy{.name = "cross_entropy", .infer = infer, .gradient = gradient};
const OpDef kCrossEntropyGrad{.name = "cross_entropy_grad",
                              .infer = infer_grad,
                              .may_overwrite = [](const Node&, int, int input) { return input == 0; }};
const OpDef kMaskTargets{.name = "mask_targets", .infer = infer_mask};
const OpDef kCountTargets{.name = "count_targets", .infer = infer_count};

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing) {
  return logits.value.graph->add(kCrossEntropy, std::array{logits.value, targets}, CrossEntropyAttrs{label_smoothing}, logits.where)[0];
}

Tensor mask_targets(At targets, Tensor lengths) {
  return targets.value.graph->add_one(kMaskTargets, std::array{targets.value, lengths}, {}, targets.where);
}

Tensor count_targets(At targets, DType dtype) {
  return targets.value.graph->add_one(kCountTargets, std::array{targets.value}, CountAttrs{dtype}, targets.where);
}

}  // namespace linnet

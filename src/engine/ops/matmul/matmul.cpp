#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_matmul(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MatmulAttrs>();
  expect_inputs(args, size_t{2} + attrs.bias + attrs.has_aux() + attrs.accumulate);
  const Shape &a = args.in[0].shape, &b = args.in[1].shape;
  const std::string both = "got " + a.text() + (attrs.trans_a ? " transposed" : "") + " and " + b.text() +
                           (attrs.trans_b ? " transposed" : "");
  expect(is_float(args.in[0].dtype) && args.in[0].dtype == args.in[1].dtype, both, ", expected two of one float type");
  expect(a.rank() >= 2 && b.rank() >= 2, both, ", expected matrices");
  const bool batched = b.rank() > 2;
  if (batched) {
    bool same = a.rank() == b.rank();
    for (int axis = 0; same && axis < a.rank() - 2; ++axis) same = a[axis] == b[axis];
    expect(same, both, ", expected equal leading axes");
  } else {
    expect(a.rank() == 2 || !attrs.trans_a, both, ", expected a matrix to transpose");
  }
  const int64_t k_a = a[attrs.trans_a ? -2 : -1], k_b = b[attrs.trans_b ? -1 : -2];
  expect(k_a == k_b, both, ", inner sizes ", k_a, " and ", k_b, " differ");
  TensorType out = args.in[0];
  out.shape.set(-1, b[attrs.trans_b ? -2 : -1]);
  if (attrs.trans_a) out.shape.set(-2, a[-1]);
  if (attrs.bias) expect(args.in[2].shape == Shape{out.shape[-1]}, "bias of shape ", args.in[2].shape);
  if (attrs.accumulate) expect(args.in.back() == out, "accumulator of type ", args.in.back());
  if (attrs.has_aux()) expect(args.in[2 + attrs.bias] == out, "aux of type ", args.in[2 + attrs.bias]);
  expect(attrs.is_sum() || !attrs.accumulate, "an accumulator of what is no sum");
  expect(!attrs.has_aux() || attrs.activation == GemmActivation::kNone, "an activation and a derivative");
  if (attrs.row_sums) {
    expect(attrs.trans_a && b.rank() == 2 && attrs.is_sum() && !attrs.bias, "row sums of another product");
    return {out, {args.in[0].dtype, {a[-1]}}};
  }
  if (attrs.pre_activation) return {out, out};
  return {out};
}

Tensor as_matrix(Tensor x) {
  if (x.shape().rank() == 2) return x;
  return reshape(x, Shape{x.shape().elements() / x.dim(-1), x.dim(-1)});
}

// C = op(A) op(B):  dA = dC op(B)^T,  dB = op(A)^T dC, each transposed where its operand is.
std::vector<Tensor> matmul_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const bool ta = attrs.trans_a, tb = attrs.trans_b;
  Tensor a = args.in[0], b = args.in[1], dc = args.out_grad[0];
  const Tensor da = ta ? matmul(b, dc, tb, true) : matmul(dc, b, false, !tb);
  if (b.shape().rank() == 2) a = as_matrix(a), dc = as_matrix(dc);  // the leading axes are summed over
  const Tensor db = tb ? matmul(dc, a, true, ta) : matmul(a, dc, !ta, false);
  return {da, db};
}

// Not over aux: by the time it is read, sums of earlier blocks lie in the result.
bool matmul_may_overwrite(const Node& node, int, int input) {
  return node.attrs.as<MatmulAttrs>().accumulate && input + 1 == static_cast<int>(node.in.size());
}

bool matmul_can_accumulate(const Node& node) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  return !attrs.accumulate && !attrs.row_sums && attrs.is_sum();
}

Attrs matmul_with_accumulator(const Attrs& old) {
  MatmulAttrs attrs = old.as<MatmulAttrs>();
  attrs.accumulate = true;
  return attrs;
}

Attrs matmul_with_independent_rows(const Attrs& old) {
  MatmulAttrs attrs = old.as<MatmulAttrs>();
  attrs.independent_rows = true;
  return attrs;
}

// Row sums stay fp32, and so does a bias on the CPU; where a result before its activation or aux is involved, all of
// them have one type.
StorageRule matmul_storage(const Node& node) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  StorageRule rule{.in = {Storage::kReduced, Storage::kReduced}};
  if (attrs.bias) rule.in.push_back(Storage::kCopied);
  if (attrs.has_aux()) rule.in.push_back(Storage::kReduced);
  if (attrs.accumulate) rule.in.push_back(Storage::kAsResult);
  rule.out.assign(node.out.size(), attrs.has_aux() || attrs.pre_activation ? Storage::kReduced : Storage::kAny);
  if (attrs.row_sums) rule.out.back() = Storage::kF32;
  return rule;
}

// "matmul+bias+relu", "matmul+times_relu_grad"; how operands are stored is left out.
std::string matmul_label(const Node& node) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  const auto name = [](auto value) { return std::string(enum_names(value)[static_cast<size_t>(value)]); };
  std::string text = "matmul";
  if (attrs.bias) text += "+bias";
  if (attrs.activation != GemmActivation::kNone) text += "+" + name(attrs.activation);
  if (attrs.pre_activation) text += "+pre_activation";
  if (attrs.has_aux()) text += "+times_" + name(attrs.derivative) + "_grad";
  if (attrs.accumulate) text += "+accumulate";
  if (attrs.row_sums) text += "+row_sums";
  if (attrs.precision != Precision::kF32) text += "+" + name(attrs.precision);
  return text;
}

double matmul_flops(const FlopsArgs& args) {
  const int64_t inner = args.in[0].shape[args.attrs<MatmulAttrs>().trans_a ? -2 : -1];
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(inner);
}

}  // namespace

const OpDef kMatmul{.name = "matmul",
                    .infer = infer_matmul,
                    .gradient = matmul_gradient,
                    .may_overwrite = matmul_may_overwrite,
                    .can_accumulate = matmul_can_accumulate,
                    .with_accumulator = matmul_with_accumulator,
                    .storage = matmul_storage,
                    .product = ProductKind::kMatrix,
                    .with_precision = set_precision<MatmulAttrs>,
                    .with_independent_rows = matmul_with_independent_rows,
                    .by_gpu_library = true,
                    .label = matmul_label,
                    .flops = matmul_flops};

Tensor matmul(At a, Tensor b, bool trans_a, bool trans_b) {
  return op_result(kMatmul, a, {b}, MatmulAttrs{.trans_a = trans_a, .trans_b = trans_b});
}

}  // namespace linnet

#include "engine/ops/matmul/matmul.h"
#include "engine/kernels/conv/dense_head.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_matmul(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MatmulAttrs>();
  expect_inputs(args, size_t{2} + attrs.bias + attrs.has_aux() + attrs.accumulate);
  const Shape &a = args.in[0].shape, &b = args.in[1].shape;
  const std::string both = "got " + a.text() + (attrs.trans_a ? " transposed" : "") + " and " + b.text() +
                           (attrs.trans_b ? " transposed" : "");
  expect(is_float(args.in[0].dtype) && args.in[0].dtype == args.in[1].dtype, both, " of ", dtype_name(args.in[0].dtype),
      " and ", dtype_name(args.in[1].dtype), ", expected one float type; cast() changes the type");
  expect(a.rank() >= 2 && b.rank() >= 2, both, ", expected matrices");
  if (b.rank() > 2) {
    const bool same = std::ranges::equal(a.sizes().first(a.rank() - 2), b.sizes().first(b.rank() - 2));
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

// Not over aux: sums of earlier blocks are in the result before it is read.
bool matmul_may_overwrite(const Node& node, int, int input) {
  return node.attrs.as<MatmulAttrs>().accumulate && input + 1 == static_cast<int>(node.in.size());
}

bool matmul_can_accumulate(const Node& node) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  return !attrs.accumulate && !attrs.row_sums && attrs.is_sum();
}

// Row sums stay fp32, and so does a bias on the CPU; results with a pre-activation or aux have its type.
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

// "matmul+bias+relu", "matmul+times_relu_grad"; without how operands are stored.
std::string matmul_label(const Node& node) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  const auto name = [](auto value) { return std::string(enum_name(value)); };
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

template <class T> void matmul_reference_product(const KernelArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const auto [batch, m, n, k] = matmul_sizes(attrs, args.in[0].shape(), args.in[1].shape());
  for (int64_t x = 0; x < batch; ++x) {
    const T *a = args.in[0].as<T>() + x * m * k, *b = args.in[1].as<T>() + x * k * n;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += rounded_operand(attrs.trans_a ? a[p * m + i] : a[i * k + p], attrs.precision) *
                 rounded_operand(attrs.trans_b ? b[j * k + p] : b[p * n + j], attrs.precision);
        const int64_t location = x * m * n + i * n + j;
        if (attrs.bias) sum += args.in[2].as<T>()[j];
        if (attrs.accumulate) sum += args.in.back().as<T>()[location];
        if (attrs.pre_activation) args.out[1].as<T>()[location] = static_cast<T>(sum);
        sum = gemm_activation(attrs.activation, sum);
        // A gradient that a ReLU stops is zero, even for NaN: select, not multiply.
        if (attrs.has_aux()) {
          const double factor = gemm_slope(attrs.derivative, args.in[2 + attrs.bias].as<T>()[location]);
          sum = factor == 0 && attrs.derivative == GemmActivation::kRelu ? 0 : sum * attrs.derivative_scale * factor;
        }
        args.out[0].as<T>()[location] = static_cast<T>(sum);
      }
  }
  for (int64_t i = 0; attrs.row_sums && i < m; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += args.in[0].as<T>()[p * m + i];
    args.out[1].as<T>()[i] = static_cast<T>(sum);
  }
}

void run_matmul_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { matmul_reference_product<T>(args); });
}

// See is_stored_in_bf16(). A bias is fp32.
bool supports_matmul(const KernelQuery& query) {
  const auto& attrs = query.attrs<MatmulAttrs>();
  if (attrs.row_sums) return false;  // made for GPUs, where a sum of its own costs two launches
  if (all_f32(query)) return true;
  const bool rounds = attrs.precision == Precision::kBf16 ||
                      (query.in[0].dtype == DType::kBF16 && query.in[1].dtype == DType::kBF16);  // nothing to round
  return all_f32_or_bf16(query) && gemm_has_bf16() && rounds && !attrs.independent_rows &&
         matmul_sizes(attrs, query.in[0].shape, query.in[1].shape).k > 0 &&
         (!attrs.bias || query.in[2].dtype == DType::kF32);
}

size_t matmul_workspace(const KernelQuery& query) {
  const auto [batch, m, n, k] = matmul_sizes(query.attrs<MatmulAttrs>(), query.in[0].shape, query.in[1].shape);
  return gemm_workspace(batch, m, n, k, query.threads, !all_f32(query));
}

GemmArgs gemm_args_of(const KernelArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const auto [batch, m, n, k] = matmul_sizes(attrs, args.in[0].shape(), args.in[1].shape());
  GemmArgs gemm_args{.batch = batch, .m = m, .n = n, .k = k};
  gemm_args.a = stored(args.in[0]), gemm_args.lda = attrs.trans_a ? m : k, gemm_args.a_batch = m * k;
  gemm_args.b = stored(args.in[1]), gemm_args.ldb = attrs.trans_b ? k : n, gemm_args.b_batch = k * n;
  gemm_args.c = mutable_stored(args.out[0]), gemm_args.ldc = n, gemm_args.c_batch = m * n;
  gemm_args.trans_a = attrs.trans_a, gemm_args.trans_b = attrs.trans_b;
  gemm_args.bias = attrs.bias ? args.in[2].as<float>() : nullptr;
  gemm_args.precision = attrs.precision, gemm_args.independent_rows = attrs.independent_rows;
  if (is_stored_in_bf16(gemm_args)) gemm_args.precision = Precision::kBf16;
  gemm_args.activation = attrs.activation, gemm_args.derivative = attrs.derivative;
  gemm_args.derivative_scale = attrs.derivative_scale;
  if (attrs.pre_activation) gemm_args.pre_activation = mutable_stored(args.out[1]);
  if (attrs.has_aux()) gemm_args.aux = stored(args.in[attrs.bias ? 3 : 2]);
  gemm_args.accumulate = attrs.accumulate && args.in.back().data == args.out[0].data;
  if (attrs.accumulate && !gemm_args.accumulate) gemm_args.residual = stored(args.in.back());
  return gemm_args;
}

void run_matmul(const KernelArgs& args) { gemm(gemm_args_of(args), args.workspace, args.pool); }

// Linear layers with few outputs: the product itself, y = x w^T, and both of its gradients.
enum class HeadKind { kNone, kForward, kWeightGradient, kInputGradient };

constexpr int64_t kMinInputs = 64;  // a few vectors
constexpr int64_t kMinRows = 4;     // the forward product takes four rows at a time

struct HeadProduct {
  HeadKind kind = HeadKind::kNone;
  DenseHeadShape shape{};
};

HeadProduct head_product(const MatmulAttrs& attrs, const Shape& a, const Shape& b) {
  if (b.rank() != 2 || attrs.precision != Precision::kF32 || (attrs.trans_a && a.rank() != 2)) return {};
  if (attrs.activation > GemmActivation::kRelu || attrs.has_aux()) return {};
  if (attrs.independent_rows) return {};  // this kernel has no code for fewer rows than kMinRows
  const bool plain = !attrs.bias && !attrs.row_sums && attrs.is_sum();
  HeadProduct head;
  if (!attrs.trans_a && attrs.trans_b && !attrs.accumulate && a.elements() >= kMinRows * a[-1])  // x [m, k], w [n, k]
    head = {HeadKind::kForward, {a.elements() / std::max<int64_t>(a[-1], 1), b[0], b[1]}};
  else if (attrs.trans_a && !attrs.trans_b && plain)  // dy [m, n], x [m, k]
    head = {HeadKind::kWeightGradient, {a[0], a[1], b[1]}};
  else if (!attrs.trans_a && !attrs.trans_b && plain)  // dy [m, n], w [n, k]
    head = {HeadKind::kInputGradient, {a.elements() / std::max<int64_t>(a[-1], 1), b[0], b[1]}};
  const auto [m, n, k] = head.shape;
  return m >= 1 && n >= 1 && n <= DenseHeadShape::kMaxOutputs && k >= kMinInputs ? head : HeadProduct{};
}

bool dense_head_supports(const KernelQuery& query) {
  return all_f32(query) &&
         head_product(query.attrs<MatmulAttrs>(), query.in[0].shape, query.in[1].shape).kind != HeadKind::kNone;
}

void run_dense_head(const KernelArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const auto [kind, shape] = head_product(attrs, args.in[0].shape(), args.in[1].shape());
  const auto *a = args.in[0].as<const float>(), *b = args.in[1].as<const float>();
  auto* out = args.out[0].as<float>();
  if (attrs.accumulate) copy_operand(args.in.back(), args.out[0]);
  switch (kind) {
    case HeadKind::kForward:
      return dense_head_forward(shape, a, b, attrs.bias ? args.in[2].as<const float>() : nullptr,
          attrs.activation == GemmActivation::kRelu, out, args.pool);
    case HeadKind::kWeightGradient: return dense_head_weight_gradient(shape, a, b, attrs.accumulate, out, args.pool);
    case HeadKind::kInputGradient: return dense_head_input_gradient(shape, a, b, attrs.accumulate, out, args.pool);
    case HeadKind::kNone: break;
  }
  fail_internal("a product that is no linear layer with few outputs");
}

void run_panels(const KernelArgs& args) { gemm_panels(gemm_args_of(args), args.workspace, args.pool); }
}  // namespace

const OpDef kMatmul{.name = "matmul",
    .infer = infer_matmul,
    .gradient = matmul_gradient,
    .may_overwrite = matmul_may_overwrite,
    .can_accumulate = matmul_can_accumulate,
    .with_accumulator = set_member<&MatmulAttrs::accumulate>,
    .storage = matmul_storage,
    .product = ProductKind::kMatrix,
    .with_precision = set_precision<MatmulAttrs>,
    .with_independent_rows = set_member<&MatmulAttrs::independent_rows>,
    .by_gpu_library = true,
    .label = matmul_label,
    .flops = matmul_flops};

Tensor matmul(At a, Tensor b, bool trans_a, bool trans_b) {
  return op_result(kMatmul, a, {b}, MatmulAttrs{.trans_a = trans_a, .trans_b = trans_b});
}

LINNET_KERNELS(matmul, {"dense_head", run_dense_head, dense_head_supports},
    {"gemm", run_matmul, supports_matmul, matmul_workspace}, {"reference", run_matmul_reference})

// A weight is one matrix. In other precisions a separate node rounds it.
std::optional<PanelsOf> panels_of(const KernelQuery& query) {
  if (query.node.op != &kMatmul || !supports_matmul(query) || dense_head_supports(query)) return std::nullopt;
  const auto& attrs = query.attrs<MatmulAttrs>();
  const auto [batch, m, n, k] = matmul_sizes(attrs, query.in[0].shape, query.in[1].shape);
  const bool is_rounded = attrs.precision != Precision::kF32 && attrs.precision != Precision::kBf16;
  if (query.in[1].dtype != DType::kF32 || query.in[1].shape.rank() != 2 || batch != 1) return std::nullopt;
  if (attrs.trans_a || attrs.independent_rows || is_rounded || !has_panels(m, n, k)) return std::nullopt;
  return PanelsOf{n, k, attrs.trans_b, attrs.precision};
}

const Kernel kPanelMatmul{
    "gemm_panels", run_panels, [](const KernelQuery& query) { return panels_of(query).has_value(); }, matmul_workspace};
}  // namespace linnet

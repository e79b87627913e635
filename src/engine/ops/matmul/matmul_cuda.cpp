// Matrix products by cuBLASLt, with the epilogue in the same kernel if possible, else in one pass after it.

#include "base/process.h"
#include "engine/device/cuda/cublaslt.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
LtProduct plain_product(const MatmulAttrs& attrs, const TensorType& a, const TensorType& b, const TensorType& out) {
  LtProduct p;
  const MatmulSizes sizes = matmul_sizes(attrs, a.shape, b.shape);
  p.batch = sizes.batch, p.m = sizes.m, p.n = sizes.n, p.k = sizes.k;
  p.trans_a = attrs.trans_a, p.trans_b = attrs.trans_b;
  p.lda = attrs.trans_a ? p.m : p.k, p.ldb = attrs.trans_b ? p.k : p.n, p.ldc = p.n;
  p.a_batch = p.m * p.k, p.b_batch = p.k * p.n, p.c_batch = p.m * p.n;
  p.operand = a.dtype, p.result = out.dtype;
  p.tf32 = attrs.precision == Precision::kTf32, p.bf16 = attrs.precision == Precision::kBf16;
  return p;
}

// The product with cuBLASLt's epilogue, and whether our own pass does the rest.
struct Form {
  LtProduct product;
  bool round_bias = false;  // to bf16, which is what cuBLASLt takes beside a bf16 result
  bool own_pass = false;    // activation, derivative
  bool own_bias = false;    // and the bias
};

// cuBLASLt's GELU is the approximated tanh form: not for strict fp32. It stores the pre-activation only in rows of a
// multiple of 8. (Its ReLU may make 0 of NaN; the optimizer's finite flag keeps NaN out of the weights.)
bool fuses(const MatmulAttrs& attrs, const LtProduct& p) {
  const bool strict = p.operand == DType::kF32 && !p.rounds();
  const auto is_gelu = [&](GemmActivation f) { return f == GemmActivation::kGeluTanh && !strict; };
  if (attrs.has_aux()) return is_gelu(attrs.derivative) && !attrs.bias && p.n % 8 == 0;
  if (attrs.pre_activation) return is_gelu(attrs.activation) && p.n % 8 == 0;
  return attrs.activation == GemmActivation::kNone || attrs.activation == GemmActivation::kRelu ||
         is_gelu(attrs.activation);
}

Form fused_form(const MatmulAttrs& attrs, LtProduct p) {
  using After = LtProduct::After;
  Form form{.product = p};
  LtProduct& f = form.product;
  f.bias = attrs.bias;
  f.beta = attrs.accumulate ? 1.0f : 0.0f;
  form.own_pass = !fuses(attrs, p);
  if (form.own_pass) return form;
  if (attrs.has_aux()) {
    f.after = After::kGeluTanhSlope, f.aux = true, f.alpha = attrs.derivative_scale;
  } else if (attrs.activation != GemmActivation::kNone) {
    f.after = attrs.activation == GemmActivation::kRelu ? After::kRelu : After::kGeluTanh;
    f.aux = attrs.pre_activation;
  }
  return form;
}

// The epilogue is our own pass.
Form bare_form(const MatmulAttrs& attrs, LtProduct plain) {
  plain.beta = attrs.accumulate ? 1.0f : 0.0f;
  return {.product = plain, .own_pass = true, .own_bias = attrs.bias};
}

// The first of these that cuBLASLt has an algorithm for: all fused, with a rounded bias, the bare product.
Form choose(CudaDevice& device, const MatmulAttrs& attrs, const LtProduct& plain, DType bias_type) {
  if (switched_off("LINNET_CUBLASLT_EPILOGUES")) return bare_form(attrs, plain);
  Form form = fused_form(attrs, plain);
  form.product.bias_type = bias_type;
  // With a bf16 result cuBLASLt documents only a bf16 bias.
  const bool documented = !attrs.bias || bias_type == plain.result;
  if (documented && lt_supports(device, form.product)) return form;
  if (attrs.bias && bias_type == DType::kF32 && plain.result == DType::kBF16) {
    form.round_bias = true;
    form.product.bias_type = DType::kBF16;
    if (lt_supports(device, form.product)) return form;
  }
  return bare_form(attrs, plain);
}

Form& form_of(CudaDevice& device, const Attrs& attrs, const LtProduct& plain, DType bias_type) {
  return device.prepared<Form>("matmul " + attrs.bytes() + " " + plain.text() + " " + dtype_name(bias_type),
      [&] { return std::make_shared<Form>(choose(device, attrs.as<MatmulAttrs>(), plain, bias_type)); });
}

// Behind cuBLASLt's own, room for a copy of the bias, or for the parts of row sums.
size_t workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<MatmulAttrs>();
  const auto width = static_cast<size_t>(query.out[0].shape[-1]);
  if (attrs.bias) return kLtWorkspace + width * dtype_size(DType::kF32);
  if (!attrs.row_sums) return kLtWorkspace;
  const MatmulSizes sizes = matmul_sizes(attrs, query.in[0].shape, query.in[1].shape);
  return kLtWorkspace + column_sums_workspace(sizes.k, sizes.m, query.in[0].dtype);
}

bool supports(const KernelQuery& query) {
  if (query.attrs<MatmulAttrs>().row_sums && query.out[1].dtype != DType::kF32) return false;
  for (const auto& types : {query.in.first(2), query.out.first(1)})
    for (const TensorType& type : types)
      if (type.dtype != DType::kF32 && type.dtype != DType::kBF16) return false;
  return query.in[0].dtype == query.in[1].dtype && query.in[0].shape.elements() > 0;
}

// The bias for cuBLASLt: rounded if the form says so, and 16-byte aligned, since an algorithm may read so many bytes at
// once and parameters may be unaligned.
const void* bias_of(CudaDevice& device, const Form& form, const KernelArgs& args) {
  std::byte* const copy = args.workspace + kLtWorkspace;
  const TensorView& bias = args.in[2];
  if (form.round_bias) {
    round_to_bf16_on_device(&device, bias.elements(), bias.as<float>(), copy);
    return copy;
  }
  if (!form.product.bias || lt_alignment({bias.data}) == 16) return bias.data;
  device.copy(copy, bias.as<std::byte>(), bias.type.bytes());
  return copy;
}

// Such a product has no other epilogue.
void run_with_sums(const KernelArgs& args) {
  auto& device = static_cast<CudaDevice&>(*args.device);
  const auto& attrs = args.attrs<MatmulAttrs>();
  LtProduct p = plain_product(attrs, args.in[0].type, args.in[1].type, args.out[0].type);
  p.beta = attrs.accumulate ? 1.0f : 0.0f;
  float* const sums = args.out[1].as<float>();
  const LtOperands o{.a = args.in[0].data,
      .b = args.in[1].data,
      .c = attrs.accumulate ? args.in.back().data : nullptr,
      .d = args.out[0].data,
      .row_sums = sums,
      .workspace = args.workspace};
  lt_run_with_sums(
      device, p, o, [&] { column_sums(&device, p.k, p.m, args.in[0], sums, args.workspace + kLtWorkspace); });
}

void run(const KernelArgs& args) {
  if (args.attrs<MatmulAttrs>().row_sums) return run_with_sums(args);
  auto& device = static_cast<CudaDevice&>(*args.device);
  const auto& attrs = args.attrs<MatmulAttrs>();
  void* aux = attrs.has_aux() ? args.in[attrs.bias ? 3 : 2].data : nullptr;
  void* pre_activation = attrs.pre_activation ? args.out[1].data : nullptr;
  LtProduct plain = plain_product(attrs, args.in[0].type, args.in[1].type, args.out[0].type);
  plain.a_alignment = lt_alignment({args.in[0].data});
  plain.b_alignment = lt_alignment({args.in[1].data});
  plain.c_alignment =
      lt_alignment({args.out[0].data, aux, pre_activation, attrs.accumulate ? args.in.back().data : nullptr});
  const DType bias_type = attrs.bias ? args.in[2].type.dtype : DType::kF32;
  Form& form = form_of(device, args.node.attrs, plain, bias_type);
  const auto multiply = [&] {
    LtOperands o{.a = args.in[0].data, .b = args.in[1].data, .workspace = args.workspace};
    o.d = form.own_pass && pre_activation ? pre_activation : args.out[0].data;
    if (form.product.beta != 0) o.c = args.in.back().data;
    if (form.product.bias) o.bias = bias_of(device, form, args);
    if (form.product.aux) o.aux = attrs.has_aux() ? aux : pre_activation;
    return lt_try(device, form.product, o);
  };
  if (!multiply()) {  // refused after all: the product alone, from now on
    form = bare_form(attrs, plain);
    if (!multiply()) fail_system("cuBLASLt refuses a product that it proposed: " + form.product.text());
  }
  if (!form.own_pass) return;
  const LtProduct& p = form.product;
  MatmulEpilogue after{.rows = p.batch * p.m, .width = p.n, .type = args.out[0].type.dtype};
  after.x = pre_activation ? pre_activation : args.out[0].data, after.out = args.out[0].data, after.aux = aux;
  if (form.own_bias) after.bias = args.in[2].data, after.bias_type = bias_type, after.pre_activation = pre_activation;
  after.activation = attrs.activation, after.derivative = attrs.derivative, after.scale = attrs.derivative_scale;
  matmul_epilogue(&device, after);
}
}  // namespace

LINNET_KERNELS(matmul_cuda, {"cublaslt", run, supports, workspace, /*may_run_aside=*/true})
}  // namespace linnet

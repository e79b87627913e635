#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/panels.h"
#include "engine/ops/matmul/dense_head.h"
#include "engine/ops/matmul/matmul_sizes.h"

namespace linnet {
namespace {

// An operand as the product sees it.
double matmul_rounded(float x, Precision precision) { return precision == Precision::kBf16 ? round_to_bf16(x) : x; }
double matmul_rounded(double x, Precision) { return x; }

template <class T>
void matmul_reference_product(const KernelArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const auto [batch, m, n, k] = matmul_sizes(attrs, args.in[0].shape(), args.in[1].shape());
  for (int64_t x = 0; x < batch; ++x) {
    const T *a = args.in[0].as<T>() + x * m * k, *b = args.in[1].as<T>() + x * k * n;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += matmul_rounded(attrs.trans_a ? a[p * m + i] : a[i * k + p], attrs.precision) *
                 matmul_rounded(attrs.trans_b ? b[j * k + p] : b[p * n + j], attrs.precision);
        const int64_t location = x * m * n + i * n + j;
        if (attrs.bias) sum += args.in[2].as<T>()[j];
        if (attrs.accumulate) sum += args.in.back().as<T>()[location];
        if (attrs.pre_activation) args.out[1].as<T>()[location] = static_cast<T>(sum);
        sum = gemm_activation(attrs.activation, sum);
        // A gradient that a ReLU stops is zero whatever it is: select, not multiply.
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
  GemmArgs gemm_args;
  gemm_args.batch = batch, gemm_args.m = m, gemm_args.n = n, gemm_args.k = k;
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

void run_panels(const KernelArgs& args) { gemm_panels(gemm_args_of(args), args.workspace, args.pool); }

}  // namespace

LINNET_KERNELS(matmul, {"dense_head", dense_head_supports, nullptr, run_dense_head},
               {"gemm", supports_matmul, matmul_workspace, run_matmul},
               {"reference", nullptr, nullptr, run_matmul_reference})

// A weight is one matrix. In other precisions a node of its own rounds it.
std::optional<PanelsOf> panels_of(const KernelQuery& query) {
  if (query.node.op != &kMatmul || !supports_matmul(query) || dense_head_supports(query)) return std::nullopt;
  const auto& attrs = query.attrs<MatmulAttrs>();
  const auto [batch, m, n, k] = matmul_sizes(attrs, query.in[0].shape, query.in[1].shape);
  const bool is_rounded = attrs.precision != Precision::kF32 && attrs.precision != Precision::kBf16;
  if (query.in[1].dtype != DType::kF32 || query.in[1].shape.rank() != 2 || batch != 1) return std::nullopt;
  if (attrs.trans_a || attrs.independent_rows || is_rounded || !has_panels(m, n, k)) return std::nullopt;
  return PanelsOf{n, k, attrs.trans_b, attrs.precision};
}

const Kernel kPanelMatmul{"gemm_panels", [](const KernelQuery& query) { return panels_of(query).has_value(); },
                          matmul_workspace, run_panels};

}  // namespace linnet

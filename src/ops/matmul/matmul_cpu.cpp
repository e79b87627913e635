#include <cstring>

#include "kernels/gemm.h"
#include "ops/matmul/dense_head.h"
#include "ops/matmul/matmul.h"

namespace linnet {
namespace {

// The product as `batch` independent [m, k] x [k, n] ones.
struct Sizes {
  int64_t batch, m, n, k;
};

Sizes sizes(const Node& node, const TensorType& a, const TensorType& b) {
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  const int64_t k = b.shape[attrs.trans_b ? -1 : -2], n = b.shape[attrs.trans_b ? -2 : -1];
  const bool batched = b.shape.rank() > 2;
  const int64_t batch = batched ? b.shape.elements(0, b.shape.rank() - 2) : 1;
  const int64_t m =
      attrs.trans_a ? a.shape[-1] : a.shape.elements(batched ? a.shape.rank() - 2 : 0, a.shape.rank() - 1);
  return {batch, m, n, k};
}

void copy_accumulator(const KernelArgs& args) {
  if (!args.node.attrs.as<MatmulAttrs>().accumulate || args.in.back().data == args.out[0].data) return;
  std::memcpy(args.out[0].data, args.in.back().data, args.out[0].type.bytes());
}

// An operand as the product sees it.
double rounded(float x, Precision precision) { return precision == Precision::kBf16 ? round_to_bf16(x) : x; }
double rounded(double x, Precision) { return x; }

template <class T>
void reference_product(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<MatmulAttrs>();
  const auto [batch, m, n, k] = sizes(args.node, args.in[0].type, args.in[1].type);
  for (int64_t x = 0; x < batch; ++x) {
    const T *a = args.in[0].as<T>() + x * m * k, *b = args.in[1].as<T>() + x * k * n;
    T* c = args.out[0].as<T>() + x * m * n;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += rounded(attrs.trans_a ? a[p * m + i] : a[i * k + p], attrs.precision) *
                 rounded(attrs.trans_b ? b[j * k + p] : b[p * n + j], attrs.precision);
        if (attrs.bias) sum += args.in[2].as<T>()[j];
        if (attrs.relu) sum = sum < 0 ? 0 : sum;
        if (attrs.accumulate) sum += c[i * n + j];
        c[i * n + j] = static_cast<T>(sum);
      }
  }
}

void run_reference(const KernelArgs& args) {
  copy_accumulator(args);
  for_float(args.out[0].type.dtype, [&]<class T>() { reference_product<T>(args); });
}

size_t workspace(const KernelQuery& query) {
  const auto [batch, m, n, k] = sizes(query.node, query.in[0], query.in[1]);
  return gemm_workspace(batch, m, n, k, query.threads);
}

void run(const KernelArgs& args) {
  copy_accumulator(args);
  const auto& attrs = args.node.attrs.as<MatmulAttrs>();
  const auto [batch, m, n, k] = sizes(args.node, args.in[0].type, args.in[1].type);
  GemmArgs gemm_args;
  gemm_args.batch = batch, gemm_args.m = m, gemm_args.n = n, gemm_args.k = k;
  gemm_args.a = args.in[0].as<float>(), gemm_args.lda = attrs.trans_a ? m : k, gemm_args.a_batch = m * k;
  gemm_args.b = args.in[1].as<float>(), gemm_args.ldb = attrs.trans_b ? k : n, gemm_args.b_batch = k * n;
  gemm_args.c = args.out[0].as<float>(), gemm_args.ldc = n, gemm_args.c_batch = m * n;
  gemm_args.trans_a = attrs.trans_a, gemm_args.trans_b = attrs.trans_b;
  gemm_args.bias = attrs.bias ? args.in[2].as<float>() : nullptr;
  gemm_args.precision = attrs.precision;
  gemm_args.relu = attrs.relu, gemm_args.accumulate = attrs.accumulate;
  gemm(gemm_args, args.workspace, args.pool);
}

constexpr Kernel kKernels[] = {{"dense_head", dense_head_supports, nullptr, run_dense_head},
                               {"gemm", all_f32, workspace, run},
                               {"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList matmul_kernels() { return kKernels; }

}  // namespace linnet

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantized/gemm_int8.h"
#include "ops/quantized/quantized.h"

namespace linnet {
namespace {

PackedWeight packed(const TensorView& data, const QuantizedAttrs& attrs) {
  return {attrs.packed(), data.as<const std::byte>()};
}

void run_dequantize(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.node.attrs.as<QuantizedAttrs>());
  dequantize_rows(weight, 0, weight.shape.rows, args.out[0].as<float>(), args.pool);
}

void run_dequantize_reference(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.node.attrs.as<QuantizedAttrs>());
  std::vector<float> row(static_cast<size_t>(weight.shape.columns));
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < weight.shape.rows; ++i) {
      dequantize_row(weight, i, row.data());
      std::ranges::copy(row, args.out[0].as<T>() + i * weight.shape.columns);
    }
  });
}

void run_embedding(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.node.attrs.as<QuantizedAttrs>());
  const int32_t* ids = args.in[1].as<const int32_t>();
  const int64_t width = weight.shape.columns;
  std::vector<float> row(args.out[0].type.dtype == DType::kF32 ? 0 : static_cast<size_t>(width));
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].elements(); ++i) {
      if (ids[i] < 0 || ids[i] >= weight.shape.rows)
        fail_user("token id " + std::to_string(ids[i]) + " is outside the vocabulary of " +
                  std::to_string(weight.shape.rows));
      T* out = args.out[0].as<T>() + i * width;
      if constexpr (std::is_same_v<T, float>) {
        dequantize_row(weight, ids[i], out);
      } else {
        dequantize_row(weight, ids[i], row.data());
        std::ranges::copy(row, out);
      }
    }
  });
}

int64_t rows_of(const Shape& a) { return a.elements(0, a.rank() - 1); }

size_t matmul_workspace(const KernelQuery& query) {
  const auto& [weight, product, rounding] = query.node.attrs.as<QuantizedMatmulAttrs>();
  const int64_t rows = rows_of(query.in[0].shape);
  const bool few = is_plain_product(product) && (rows <= kFewRows || product.independent_rows);
  return quantized_gemm_workspace(weight.packed(), rows, few, query.threads);
}

void run_matmul(const KernelArgs& args) {
  const auto& [weight, product, rounding] = args.node.attrs.as<QuantizedMatmulAttrs>();
  GemmArgs gemm_args{.m = rows_of(args.in[0].shape())};
  gemm_args.a = args.in[0].as<float>(), gemm_args.lda = args.in[0].shape()[-1];
  gemm_args.c = args.out[0].as<float>(), gemm_args.ldc = args.out[0].shape()[-1];
  gemm_args.trans_b = product.trans_b;
  if (product.bias) gemm_args.bias = args.in[2].as<float>();
  if (product.accumulate) gemm_args.residual = args.in.back().as<float>();
  if (product.pre_activation) gemm_args.pre_activation = args.out[1].as<float>();
  if (product.has_aux()) gemm_args.aux = args.in[product.bias ? 3 : 2].as<float>();
  gemm_args.activation = product.activation, gemm_args.derivative = product.derivative;
  gemm_args.derivative_scale = product.derivative_scale;
  gemm_args.precision = product.precision, gemm_args.independent_rows = product.independent_rows;
  quantized_gemm(gemm_args, packed(args.in[1], weight), args.workspace, args.pool, rounding.rounding());
}

void run_round_activations(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<RoundingAttrs>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    std::transform(args.in[0].as<T>(), args.in[0].as<T>() + args.in[0].elements(), args.out[0].as<T>(),
                   [&](T x) { return attrs.rounded(x); });
  });
}

// The definition: the weight's numbers in float64, kInt8's other operand rounded as the fast kernels round it, and the
// reference product of the two.
template <class T>
void reference_product(const KernelArgs& args) {
  const auto& [attrs, product, rounding] = args.node.attrs.as<QuantizedMatmulAttrs>();
  const PackedWeight weight = packed(args.in[1], attrs);
  const int64_t k = weight.shape.columns, n = weight.shape.rows;
  std::vector<T> w(static_cast<size_t>(n * k)), a;
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t j = 0; j < n; ++j) {
    dequantize_row(weight, j, row.data());
    std::ranges::copy(row, w.begin() + j * k);
  }
  Node node = args.node;
  node.op = &kMatmul, node.attrs = product;
  std::vector<TensorView> in(args.in.begin(), args.in.end());
  in[1] = {.data = w.data(), .type = {args.in[0].type.dtype, attrs.weight.shape}};
  if (rounding.scale > 0) {
    a.assign(in[0].as<T>(), in[0].as<T>() + in[0].elements());
    for (T& x : a) x = rounding.rounded(x);
    in[0].data = a.data();
  } else if (attrs.format == WeightFormat::kInt8) {
    a.assign(in[0].as<T>(), in[0].as<T>() + in[0].elements());
    std::vector<uint8_t> codes(static_cast<size_t>(weight.shape.blocks() * PackedShape::kBlock));
    for (int64_t i = 0; i < rows_of(in[0].shape()); ++i) {
      std::transform(a.begin() + i * k, a.begin() + (i + 1) * k, row.begin(),
                     [](T x) { return static_cast<float>(x); });
      const double scale = quantize_activations(row.data(), k, codes.data());
      for (int64_t t = 0; t < k; ++t)
        a[static_cast<size_t>(i * k + t)] = static_cast<T>(scale * (codes[static_cast<size_t>(t)] - 128));
    }
    in[0].data = a.data();
  }
  matmul_kernels().back().run({node, in, args.out, args.workspace, args.pool, args.device});
}

void run_matmul_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { reference_product<T>(args); });
}

constexpr Kernel kDequantizeKernels[] = {{"rows", all_f32, nullptr, run_dequantize},
                                         {"reference", nullptr, nullptr, run_dequantize_reference}};
constexpr Kernel kEmbeddingKernels[] = {{"reference", nullptr, nullptr, run_embedding}};
constexpr Kernel kMatmulKernels[] = {{"quantized_gemm", all_f32, matmul_workspace, run_matmul},
                                     {"reference", nullptr, nullptr, run_matmul_reference}};

constexpr Kernel kRoundingKernels[] = {{"reference", nullptr, nullptr, run_round_activations}};

}  // namespace

KernelList round_activations_kernels() { return kRoundingKernels; }
KernelList dequantize_kernels() { return kDequantizeKernels; }
KernelList quantized_embedding_kernels() { return kEmbeddingKernels; }
KernelList quantized_matmul_kernels() { return kMatmulKernels; }

}  // namespace linnet

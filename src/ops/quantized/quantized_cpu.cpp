#include <algorithm>
#include <vector>

#include "kernels/quantized/gemm_int8.h"
#include "ops/matmul/gemm_activation.h"
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
  return quantized_gemm_workspace(query.node.attrs.as<QuantizedMatmulAttrs>().weight.packed(),
                                  rows_of(query.in[0].shape), query.threads);
}

void run_matmul(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<QuantizedMatmulAttrs>();
  const PackedWeight weight = packed(args.in[1], attrs.weight);
  GemmArgs gemm_args{.m = rows_of(args.in[0].shape()), .n = weight.shape.rows, .k = weight.shape.columns};
  gemm_args.a = args.in[0].as<float>(), gemm_args.lda = gemm_args.k;
  gemm_args.c = args.out[0].as<float>(), gemm_args.ldc = gemm_args.n;
  if (attrs.bias) gemm_args.bias = args.in[2].as<float>();
  if (attrs.accumulate) gemm_args.residual = args.in.back().as<float>();
  gemm_args.activation = attrs.activation, gemm_args.independent_rows = attrs.independent_rows;
  quantized_gemm(gemm_args, weight, args.workspace, args.pool);
}

// The definition, on activations as float32 has them: their rounding to 8 bits is that of the fast kernels.
template <class T>
void reference_product(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<QuantizedMatmulAttrs>();
  const PackedWeight weight = packed(args.in[1], attrs.weight);
  const int64_t k = weight.shape.columns, n = weight.shape.rows, m = rows_of(args.in[0].shape());
  const bool rounds = attrs.weight.format == WeightFormat::kInt8;
  std::vector<double> a(static_cast<size_t>(m * k));
  std::vector<float> row(static_cast<size_t>(k));
  std::vector<uint8_t> codes(static_cast<size_t>(weight.shape.blocks() * PackedShape::kBlock));
  for (int64_t i = 0; i < m; ++i) {
    std::copy_n(args.in[0].as<T>() + i * k, k, a.begin() + i * k);
    if (!rounds) continue;
    std::ranges::transform(std::span(a).subspan(static_cast<size_t>(i * k), static_cast<size_t>(k)), row.begin(),
                           [](double x) { return static_cast<float>(x); });
    const double scale = quantize_activations(row.data(), k, codes.data());
    for (int64_t t = 0; t < k; ++t) a[static_cast<size_t>(i * k + t)] = scale * (codes[static_cast<size_t>(t)] - 128);
  }
  for (int64_t j = 0; j < n; ++j) {
    dequantize_row(weight, j, row.data());
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (int64_t t = 0; t < k; ++t) sum += a[static_cast<size_t>(i * k + t)] * row[static_cast<size_t>(t)];
      if (attrs.bias) sum += args.in[2].as<T>()[j];
      if (attrs.accumulate) sum += args.in.back().as<T>()[i * n + j];
      args.out[0].as<T>()[i * n + j] = static_cast<T>(gemm_activation(attrs.activation, sum));
    }
  }
}

void run_matmul_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { reference_product<T>(args); });
}

constexpr Kernel kDequantizeKernels[] = {{"rows", all_f32, nullptr, run_dequantize},
                                         {"reference", nullptr, nullptr, run_dequantize_reference}};
constexpr Kernel kEmbeddingKernels[] = {{"reference", nullptr, nullptr, run_embedding}};
constexpr Kernel kMatmulKernels[] = {{"quantized_gemm", all_f32, matmul_workspace, run_matmul},
                                     {"reference", nullptr, nullptr, run_matmul_reference}};

}  // namespace

KernelList dequantize_kernels() { return kDequantizeKernels; }
KernelList quantized_embedding_kernels() { return kEmbeddingKernels; }
KernelList quantized_matmul_kernels() { return kMatmulKernels; }

}  // namespace linnet

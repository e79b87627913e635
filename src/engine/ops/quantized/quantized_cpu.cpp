#include <algorithm>
#include <vector>
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/gemm_int8.h"
#include "engine/ops/quantized/quantized.h"

namespace linnet {

KernelList matmul_kernels();  // engine/ops/matmul/matmul_cpu.cpp

namespace {

PackedWeight packed(const TensorView& data, const QuantizedAttrs& attrs) {
  return {attrs.packed(), data.as<const std::byte>()};
}

void run_dequantize(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.attrs<QuantizedAttrs>());
  dequantize_rows(weight, 0, weight.shape.rows, args.out[0].as<float>(), args.pool);
}

void run_dequantize_reference(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.attrs<QuantizedAttrs>());
  std::vector<float> row(static_cast<size_t>(weight.shape.columns));
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < weight.shape.rows; ++i) {
      dequantize_row(weight, i, row.data());
      std::ranges::copy(row, args.out[0].as<T>() + i * weight.shape.columns);
    }
  });
}

void run_embedding(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.attrs<QuantizedAttrs>());
  const int32_t* ids = args.in[1].as<const int32_t>();
  const int64_t width = weight.shape.columns;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, args.in[1].elements(), width, [&](int64_t begin, int64_t end) {
      std::vector<float> row(std::is_same_v<T, float> ? 0 : static_cast<size_t>(width));
      for (int64_t i = begin; i < end; ++i) {
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
  });
}

int64_t quantized_rows_of(const Shape& a) { return a.elements(0, a.rank() - 1); }

size_t matmul_workspace(const KernelQuery& query) {
  const auto& [weight, product, rounding, result_rounding] = query.attrs<QuantizedMatmulAttrs>();
  const int64_t rows = quantized_rows_of(query.in[0].shape);
  const bool few = is_plain_product(product) && (rows <= kFewRows || product.independent_rows);
  return quantized_gemm_workspace(weight.packed(), rows, few, query.threads, query.in[0].dtype == DType::kU8,
                                  rounding.largest_error > 0);
}

// See is_stored_in_bf16(). A bias is fp32.
bool matmul_supports(const KernelQuery& query) {
  if (all_f32(query)) return true;
  const auto& [weight, product, rounding, result_rounding] = query.attrs<QuantizedMatmulAttrs>();
  return all_f32_or_bf16(query) && gemm_has_bf16() && weight.format == WeightFormat::kInt8 && rounding.scale == 0 &&
         result_rounding.scale == 0 && (!product.bias || query.in[2].dtype == DType::kF32);
}

// All of the product but the weight.
struct Product {
  GemmArgs args;
  ByteOperands bytes;
};

Product product_of(const KernelArgs& args) {
  const auto& [weight, product, rounding, result_rounding] = args.attrs<QuantizedMatmulAttrs>();
  GemmArgs gemm_args{.m = quantized_rows_of(args.in[0].shape())};
  gemm_args.lda = args.in[0].shape()[-1], gemm_args.ldc = args.out[0].shape()[-1];
  ByteOperands bytes{.result_rounding = result_rounding.rounding()};
  if (args.in[0].type.dtype == DType::kU8) bytes.a = args.in[0].as<const uint8_t>();
  else gemm_args.a = stored(args.in[0]);
  if (args.out[0].type.dtype == DType::kU8) bytes.c = args.out[0].as<uint8_t>();
  else gemm_args.c = mutable_stored(args.out[0]);
  gemm_args.trans_b = product.trans_b;
  if (product.bias) gemm_args.bias = args.in[2].as<float>();
  if (product.accumulate) gemm_args.residual = stored(args.in.back());
  if (product.pre_activation) gemm_args.pre_activation = mutable_stored(args.out[1]);
  if (product.has_aux()) gemm_args.aux = stored(args.in[product.bias ? 3 : 2]);
  gemm_args.activation = product.activation, gemm_args.derivative = product.derivative;
  gemm_args.derivative_scale = product.derivative_scale;
  gemm_args.precision = product.precision, gemm_args.independent_rows = product.independent_rows;
  return {gemm_args, bytes};
}

void run_matmul(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedMatmulAttrs>();
  const auto [product, bytes] = product_of(args);
  quantized_gemm(product, packed(args.in[1], attrs.weight), args.workspace, args.pool, attrs.rounding.rounding(),
                 bytes);
}

void run_panels(const KernelArgs& args) {
  const PackedShape shape = args.attrs<QuantizedMatmulAttrs>().weight.packed();
  GemmArgs product = product_of(args).args;
  product.n = shape.rows, product.k = shape.columns;
  product.b = reinterpret_cast<const float*>(args.in[1].as<const uint8_t>());
  gemm_panels(product, args.workspace, args.pool);
}

size_t quantize_workspace(const KernelQuery& query) {
  return quantize_weight_workspace(query.attrs<QuantizeWeightAttrs>().weight.packed(), query.threads);
}

void run_quantize(const KernelArgs& args) {
  const auto& [weight, transposed] = args.attrs<QuantizeWeightAttrs>();
  auto* packed = reinterpret_cast<std::byte*>(args.out[0].as<uint8_t>());
  quantize_weight(weight.packed(), args.in[0].as<float>(), transposed, packed, args.workspace, args.pool);
}

void run_quantize_reference(const KernelArgs& args) {
  const auto& [weight, transposed] = args.attrs<QuantizeWeightAttrs>();
  std::vector<float> w(static_cast<size_t>(args.in[0].elements()));
  for_float(args.in[0].type.dtype, [&]<class T>() {
    std::transform(args.in[0].as<T>(), args.in[0].as<T>() + w.size(), w.begin(),
                   [](T x) { return static_cast<float>(x); });
  });
  std::vector<std::byte> workspace(quantize_weight_workspace(weight.packed(), args.pool.size()));
  auto* packed = reinterpret_cast<std::byte*>(args.out[0].as<uint8_t>());
  quantize_weight(weight.packed(), w.data(), transposed, packed, workspace.data(), args.pool);
}

void run_round_activations(const KernelArgs& args) {
  const auto& attrs = args.attrs<RoundingAttrs>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    std::transform(args.in[0].as<T>(), args.in[0].as<T>() + args.in[0].elements(), args.out[0].as<T>(),
                   [&](T x) { return attrs.rounded(x); });
  });
}

// What the product multiplies by the weight: the numbers that codes stand for, or kInt8's other operand rounded as the
// fast kernels round it.
template <class T>
std::vector<T> rounded_operand(const TensorView& a, const QuantizedMatmulAttrs& attrs) {
  const RoundingAttrs& rounding = attrs.rounding;
  std::vector<T> numbers(static_cast<size_t>(a.elements()));
  if (a.type.dtype == DType::kU8) {
    std::transform(a.as<const uint8_t>(), a.as<const uint8_t>() + a.elements(), numbers.begin(), [&](uint8_t code) {
      return static_cast<T>(static_cast<float>(code - rounding.zero) * rounding.scale);
    });
    return numbers;
  }
  std::copy_n(a.as<T>(), a.elements(), numbers.begin());
  if (rounding.scale > 0) {
    for (T& x : numbers) x = rounding.rounded(x);
  } else if (attrs.weight.format == WeightFormat::kInt8) {
    const PackedShape shape = attrs.weight.packed();
    std::vector<float> row(static_cast<size_t>(shape.columns));
    std::vector<uint8_t> codes(static_cast<size_t>(shape.blocks() * PackedShape::kBlock)), rest(codes.size());
    for (auto at = numbers.begin(); at != numbers.end(); at += shape.columns) {
      std::transform(at, at + shape.columns, row.begin(), [](T x) { return static_cast<float>(x); });
      const RowScales scales =
          quantize_activations(row.data(), shape.columns, codes.data(), rounding.largest_error, rest.data());
      const double scale = scales.scale, rest_scale = scales.rest_scale;
      std::transform(codes.begin(), codes.begin() + shape.columns, rest.begin(), at, [&](uint8_t code, uint8_t more) {
        return static_cast<T>(scale * (code - 128) + rest_scale * (more - 128));
      });
    }
  }
  return numbers;
}

DType number_type(const KernelArgs& args) {
  const DType result = args.out[0].type.dtype;
  return is_float(result) ? result : args.attrs<QuantizedMatmulAttrs>().weight.weight.dtype;
}

// The definition: the weight's numbers, and the reference product of the two.
template <class T>
void quantized_reference_product(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedMatmulAttrs>();
  const PackedWeight weight = packed(args.in[1], attrs.weight);
  const int64_t k = weight.shape.columns, n = weight.shape.rows;
  std::vector<T> w(static_cast<size_t>(n * k)), a = rounded_operand<T>(args.in[0], attrs);
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t j = 0; j < n; ++j) {
    dequantize_row(weight, j, row.data());
    std::ranges::copy(row, w.begin() + j * k);
  }
  Node node = args.node;
  node.op = &kMatmul, node.attrs = attrs.product;
  const DType dtype = number_type(args);
  std::vector<TensorView> in(args.in.begin(), args.in.end()), out(args.out.begin(), args.out.end());
  in[0] = {.data = a.data(), .type = {dtype, args.in[0].shape()}};
  in[1] = {.data = w.data(), .type = {dtype, attrs.weight.weight.shape}};
  const RoundingAttrs& rounding = attrs.result_rounding;
  std::vector<T> result(rounding.scale > 0 ? static_cast<size_t>(args.out[0].elements()) : 0);
  if (rounding.scale > 0) out[0] = {.data = result.data(), .type = {dtype, args.out[0].shape()}};
  matmul_kernels().back().run({node, in, out, args.workspace, args.pool, args.device});
  std::ranges::transform(result, args.out[0].as<uint8_t>(), [&](T x) { return rounding.code(x); });
}

void run_matmul_reference(const KernelArgs& args) {
  for_float(number_type(args), [&]<class T>() { quantized_reference_product<T>(args); });
}

}  // namespace

LINNET_KERNELS(round_activations, {"reference", nullptr, nullptr, run_round_activations})
LINNET_KERNELS(quantize_weight, {"rows", all_f32, quantize_workspace, run_quantize},
               {"reference", nullptr, nullptr, run_quantize_reference})
LINNET_KERNELS(dequantize, {"rows", all_f32, nullptr, run_dequantize},
               {"reference", nullptr, nullptr, run_dequantize_reference})
LINNET_KERNELS(quantized_embedding, {"reference", nullptr, nullptr, run_embedding})
LINNET_KERNELS(quantized_matmul, {"quantized_gemm", matmul_supports, matmul_workspace, run_matmul},
               {"reference", nullptr, nullptr, run_matmul_reference})

std::optional<PanelsOf> quantized_panels_of(const KernelQuery& query) {
  if (query.node.op != &kQuantizedMatmul || !matmul_supports(query)) return std::nullopt;
  const auto& attrs = query.attrs<QuantizedMatmulAttrs>();
  const PackedShape shape = attrs.weight.packed();
  const MatmulAttrs& product = attrs.product;
  const bool in_bf16 = shape.format == WeightFormat::kBf16 && product.precision == Precision::kBf16 && gemm_has_bf16();
  if (!in_bf16 || !product.trans_b || product.independent_rows ||
      !has_panels(quantized_rows_of(query.in[0].shape), shape.rows, shape.columns))
    return std::nullopt;
  return PanelsOf{shape.rows, shape.columns, product.trans_b, product.precision, in_bf16};
}

const Kernel kPanelQuantizedMatmul{"quantized_gemm_panels",
                                   [](const KernelQuery& query) { return quantized_panels_of(query).has_value(); },
                                   matmul_workspace, run_panels};

}  // namespace linnet

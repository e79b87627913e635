#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/products.h"
#include "engine/kernels/random/philox.h"
#include "engine/kernels/stored_floats.h"
#include "engine/ops/quantized/quantized.h"

namespace linnet {
KernelList matmul_kernels();  // engine/ops/matmul/matmul.cpp

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
  std::vector<float> row(weight.shape.columns);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < weight.shape.rows; ++i) {
      dequantize_row(weight, i, row.data());
      std::ranges::copy(row, args.out[0].as<T>() + i * weight.shape.columns);
    }
  });
}

void run_quantized_embedding(const KernelArgs& args) {
  const PackedWeight weight = packed(args.in[0], args.attrs<QuantizedAttrs>());
  const int32_t* ids = args.in[1].as<const int32_t>();
  const int64_t width = weight.shape.columns;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for_ranges(args.pool, args.in[1].elements(), width, [&](int64_t begin, int64_t end) {
      std::vector<float> row(std::is_same_v<T, float> ? 0 : static_cast<size_t>(width));
      for (int64_t i = begin; i < end; ++i) {
        if (ids[i] < 0 || ids[i] >= weight.shape.rows)
          fail_user("id ", ids[i], " is outside of a table of ", weight.shape.rows, " rows");
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
  return quantized_gemm_workspace(
      weight.packed(), rows, few, query.threads, query.in[0].dtype == DType::kU8, rounding.largest_error > 0);
}

// See is_stored_in_bf16(). A bias is fp32.
bool matmul_supports(const KernelQuery& query) {
  if (all_f32(query)) return true;
  const auto& [weight, product, rounding, result_rounding] = query.attrs<QuantizedMatmulAttrs>();
  return all_f32_or_bf16(query) && gemm_has_bf16() && weight.format == WeightFormat::kInt8 && rounding.scale == 0 &&
         result_rounding.scale == 0 && (!product.bias || query.in[2].dtype == DType::kF32);
}

struct Product {
  GemmArgs args;
  ByteOperands bytes;
};

Product product_of(const KernelArgs& args) {
  const auto& [weight, product, rounding, result_rounding] = args.attrs<QuantizedMatmulAttrs>();
  GemmArgs gemm_args{.m = quantized_rows_of(args.in[0].shape())};
  gemm_args.lda = args.in[0].shape()[-1], gemm_args.ldc = args.out[0].shape()[-1];
  ByteOperands bytes{.result_rounding = result_rounding};
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
  quantized_gemm(product, packed(args.in[1], attrs.weight), args.workspace, args.pool, attrs.rounding, bytes);
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
  std::vector<float> w(args.in[0].elements());
  for_float(args.in[0].type.dtype, [&]<class T>() {
    std::transform(
        args.in[0].as<T>(), args.in[0].as<T>() + w.size(), w.begin(), [](T x) { return static_cast<float>(x); });
  });
  std::vector<std::byte> workspace(quantize_weight_workspace(weight.packed(), args.pool.size()));
  auto* packed = reinterpret_cast<std::byte*>(args.out[0].as<uint8_t>());
  quantize_weight(weight.packed(), w.data(), transposed, packed, workspace.data(), args.pool);
}

void run_round_activations(const KernelArgs& args) {
  const auto& attrs = args.attrs<StaticRounding>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    std::transform(args.in[0].as<T>(), args.in[0].as<T>() + args.in[0].elements(), args.out[0].as<T>(),
        [&](T x) { return attrs.rounded(x); });
  });
}

// The operand multiplied by the weight: the numbers of codes, or kInt8's other operand rounded as in the fast kernels.
template <class T> std::vector<T> rounded_operand(const TensorView& a, const QuantizedMatmulAttrs& attrs) {
  const StaticRounding& rounding = attrs.rounding;
  std::vector<T> numbers(a.elements());
  if (a.type.dtype == DType::kU8) {
    std::transform(a.as<const uint8_t>(), a.as<const uint8_t>() + a.elements(), numbers.begin(),
        [&](uint8_t code) { return static_cast<T>(static_cast<float>(code - rounding.zero) * rounding.scale); });
    return numbers;
  }
  std::copy_n(a.as<T>(), a.elements(), numbers.begin());
  if (rounding.scale > 0) {
    for (T& x : numbers) x = rounding.rounded(x);
  } else if (attrs.weight.format == WeightFormat::kInt8) {
    const PackedShape shape = attrs.weight.packed();
    std::vector<float> row(shape.columns);
    std::vector<uint8_t> codes(shape.blocks() * PackedShape::kBlock), rest(codes.size());
    for (auto at = numbers.begin(); at != numbers.end(); at += shape.columns) {
      std::transform(at, at + shape.columns, row.begin(), [](T x) { return static_cast<float>(x); });
      const RowScales scales =
          quantize_activations(row.data(), shape.columns, codes.data(), rounding.largest_error, rest.data());
      const double scale = scales.scale, rest_scale = scales.rest_scale;
      std::transform(codes.begin(), codes.begin() + shape.columns, rest.begin(), at,
          [&](uint8_t code, uint8_t more) { return static_cast<T>(scale * (code - 128) + rest_scale * (more - 128)); });
    }
  }
  return numbers;
}

DType number_type(const KernelArgs& args) {
  const DType result = args.out[0].type.dtype;
  return is_float(result) ? result : args.attrs<QuantizedMatmulAttrs>().weight.weight.dtype;
}

// The definition: the reference product with the weight's numbers.
template <class T> void quantized_reference_product(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedMatmulAttrs>();
  const PackedWeight weight = packed(args.in[1], attrs.weight);
  const int64_t k = weight.shape.columns, n = weight.shape.rows;
  std::vector<T> w(n * k), a = rounded_operand<T>(args.in[0], attrs);
  std::vector<float> row(k);
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
  const StaticRounding& rounding = attrs.result_rounding;
  std::vector<T> result(rounding.scale > 0 ? static_cast<size_t>(args.out[0].elements()) : 0);
  if (rounding.scale > 0) out[0] = {.data = result.data(), .type = {dtype, args.out[0].shape()}};
  matmul_kernels().back().run({node, in, out, args.workspace, args.pool, args.device});
  std::ranges::transform(result, args.out[0].as<uint8_t>(), [&](T x) { return rounding.code(x); });
}

void run_matmul_reference(const KernelArgs& args) {
  for_float(number_type(args), [&]<class T>() { quantized_reference_product<T>(args); });
}

// The result; its end behind the last number is padding.
uint16_t* rounded_numbers(const KernelArgs& args) {
  auto* packed = args.out[0].as<uint8_t>();
  const int64_t used = args.in[0].elements() * static_cast<int64_t>(sizeof(uint16_t));
  std::fill(packed + used, packed + args.out[0].elements(), uint8_t{0});
  return reinterpret_cast<uint16_t*>(packed);
}

uint64_t round_bf16_key(const KernelArgs& args) {
  return dropout_key(args.in[1].as<int32_t>(), args.attrs<RoundBf16Attrs>().site);
}

void run_round_bf16(const KernelArgs& args) {
  round_to_bf16_stochastic(
      args.in[0].elements(), args.in[0].as<float>(), rounded_numbers(args), round_bf16_key(args), args.pool);
}

void run_round_bf16_reference(const KernelArgs& args) {
  const int64_t count = args.in[0].elements();
  std::vector<uint16_t> random(static_cast<size_t>(count + 7) / 8 * 8);
  philox_values16(round_bf16_key(args), 0, static_cast<int64_t>(random.size()) / 8, kBf16Rounding, 0, 0, random.data());
  uint16_t* y = rounded_numbers(args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) y[i] = round_to_bf16_by(static_cast<float>(args.in[0].as<T>()[i]), random[i]);
  });
}

size_t quantized_conv2d_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<QuantizedConv2dAttrs>();
  return int8_convolution_workspace(attrs.sizes(query.in[0].shape), attrs.weight.packed().rows, query.threads);
}

void run_quantized_conv2d(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedConv2dAttrs>();
  Int8Convolution c{.sizes = attrs.sizes(args.in[0].shape()), .rounding = attrs.rounding};
  const auto take = [](const TensorView& view, const float*& floats, const uint8_t*& codes) {
    if (view.type.dtype == DType::kU8) codes = view.as<const uint8_t>();
    else floats = view.as<const float>();
  };
  take(args.in[0], c.x, c.x_codes);
  if (attrs.scale) c.scale = args.in[attrs.scale_at()].as<const float>();
  if (attrs.bias) c.bias = args.in[attrs.bias_at()].as<const float>();
  if (attrs.residual) take(args.in[attrs.residual_at()], c.residual, c.residual_codes);
  c.residual_rounding = attrs.residual_rounding;
  c.relu = attrs.relu;
  if (attrs.result_rounding.scale > 0) c.y_codes = args.out[0].as<uint8_t>(), c.y_rounding = attrs.result_rounding;
  else c.y = args.out[0].as<float>();
  int8_convolution(c, packed(args.in[1], attrs.weight), args.workspace, args.pool);
}

class QuantizedConv2dReference {  // the definition
 public:
  explicit QuantizedConv2dReference(const KernelArgs& args)
      : args_(args), attrs_(args.attrs<QuantizedConv2dAttrs>()), s_(attrs_.sizes(args.in[0].shape())) {}

  void run() const {
    const PackedWeight weight = packed(args_.in[1], attrs_.weight);
    const int64_t filters = weight.shape.rows, results = s_.out_height() * s_.out_width();
    std::vector<float> filter(weight.shape.columns);
    for (int64_t image = 0; image < s_.images; ++image) {
      const StaticRounding rounding = rounding_of(image);
      for (int64_t o = 0; o < filters; ++o) {
        dequantize_row(weight, o, filter.data());
        for (int64_t result = 0; result < results; ++result)
          store(((image * results) + result) * filters + o, o, sum(image, result, filter, rounding));
      }
    }
  }

 private:
  static double number(const TensorView& view, int64_t index, const StaticRounding& rounding) {
    if (view.type.dtype == DType::kU8)
      return static_cast<double>(rounding.scale) * (view.as<const uint8_t>()[index] - rounding.zero);
    return view.type.dtype == DType::kF64 ? view.as<const double>()[index] : view.as<const float>()[index];
  }

  StaticRounding rounding_of(int64_t image) const {
    StaticRounding rounding = attrs_.rounding;
    if (rounding.scale > 0) return rounding;
    double most = 0;
    const int64_t size = s_.height * s_.width * s_.channels;
    for (int64_t i = image * size; i < (image + 1) * size; ++i)
      most = std::max(most, std::abs(number(args_.in[0], i, rounding)));
    rounding.least = rounding.zero == 0 ? 0 : 1, rounding.most = 255;
    rounding.scale = most > 0 ? static_cast<float>(most) / static_cast<float>(255 - rounding.zero) : 1;
    return rounding;
  }

  double sum(int64_t image, int64_t result, const std::vector<float>& filter, const StaticRounding& rounding) const {
    const int64_t top = result / s_.out_width() * s_.vertical.stride - s_.vertical.before;
    const int64_t left = result % s_.out_width() * s_.horizontal.stride - s_.horizontal.before;
    double sum = 0;
    for (int64_t tap = 0; tap < s_.vertical.size * s_.horizontal.size; ++tap) {
      const int64_t i = top + tap / s_.horizontal.size * s_.vertical.dilation;
      const int64_t j = left + tap % s_.horizontal.size * s_.horizontal.dilation;
      if (i < 0 || i >= s_.height || j < 0 || j >= s_.width) continue;
      for (int64_t c = 0; c < s_.channels; ++c) {
        const double x = number(args_.in[0], ((image * s_.height + i) * s_.width + j) * s_.channels + c, rounding);
        sum += rounding.rounded(x) * static_cast<double>(filter[tap * s_.channels + c]);
      }
    }
    return sum;
  }

  void store(int64_t index, int64_t o, double y) const {
    if (attrs_.scale) y *= number(args_.in[attrs_.scale_at()], o, {});
    if (attrs_.bias) y += number(args_.in[attrs_.bias_at()], o, {});
    if (attrs_.residual) y += number(args_.in[attrs_.residual_at()], index, attrs_.residual_rounding);
    if (attrs_.relu && y < 0) y = 0;
    const StaticRounding& r = attrs_.result_rounding;
    if (r.scale > 0) args_.out[0].as<uint8_t>()[index] = r.code(y);
    else for_float(args_.out[0].type.dtype, [&]<class T>() { args_.out[0].as<T>()[index] = static_cast<T>(y); });
  }

  const KernelArgs& args_;
  const QuantizedConv2dAttrs& attrs_;
  const Int8ConvolutionSizes s_;
};

void run_quantized_conv2d_reference(const KernelArgs& args) { QuantizedConv2dReference(args).run(); }
}  // namespace

LINNET_KERNELS(round_activations, {"reference", run_round_activations})
LINNET_KERNELS(
    quantize_weight, {"rows", run_quantize, all_f32, quantize_workspace}, {"reference", run_quantize_reference})
LINNET_KERNELS(round_bf16, {"simd", run_round_bf16, all_f32}, {"reference", run_round_bf16_reference})
LINNET_KERNELS(dequantize, {"rows", run_dequantize, all_f32}, {"reference", run_dequantize_reference})
LINNET_KERNELS(quantized_embedding, {"reference", run_quantized_embedding})
LINNET_KERNELS(quantized_conv2d, {"int8", run_quantized_conv2d, all_f32, quantized_conv2d_workspace},
    {"reference", run_quantized_conv2d_reference})
LINNET_KERNELS(quantized_matmul, {"quantized_gemm", run_matmul, matmul_supports, matmul_workspace},
    {"reference", run_matmul_reference})

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

const Kernel kPanelQuantizedMatmul{"quantized_gemm_panels", run_panels,
    [](const KernelQuery& query) { return quantized_panels_of(query).has_value(); }, matmul_workspace};
}  // namespace linnet

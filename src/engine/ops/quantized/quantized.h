// Weights of 16, 8 or 4 bits in a graph (engine/kernels/quantized/packed_weight.h), and the ops that read them packed.
//
//   dequantize(packed) = W, the numbers that the packed bytes stand for     [rows, columns]
//   quantized_embedding(packed, ids) = rows of W                            [..., columns]
//   quantized_matmul(a, packed, ...) = matmul(round(a), W, ...)             with all that a matmul may have besides
//   round_activations(a) = a as a StaticRounding (engine/kernels/quantized/products.h) rounds it, in floats again
//
// For WeightFormat::kInt8, round() rounds each row of a to 8 bits, so that the product sums integers; the rounding of
// round_activations replaces it. For others it is the identity; with few rows the block kernel rounds to 16 bits
// (engine/kernels/quantized/products.h). Model code knows none of them: a Trace gives a quantized parameter as a
// dequantize node, and the pass fuse_quantized joins it with products and lookups. A packed weight is never trained:
// gradients are taken before that pass.
#pragma once
#include <optional>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/kernels/quantized/products.h"
#include "engine/ops/kernel.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
struct QuantizedAttrs {
  WeightFormat format = WeightFormat::kInt8;
  TensorType weight = {};  // what the packed bytes stand for: f32 [rows, columns]; f64 in the reference
  float input_scale = 0;   // of kInt8: products round their other operand by it (static_rounding()); 0: row by row
  int64_t tail_rows = 0;   // PackedShape's
  WeightFormat tail_format = WeightFormat::kInt8;
  void fields(FieldVisitor& visit) {
    visit("format", format), visit("weight", weight), visit("input_scale", input_scale);
    visit("tail_rows", tail_rows), visit("tail_format", tail_format);
  }
  PackedShape packed() const { return {format, weight.shape[0], weight.shape[1], tail_rows, tail_format}; }
};
QuantizedAttrs quantized_attrs(const PackedShape& shape, DType dtype, float input_scale = 0);

// Codes -127..127 with 128 added, by one scale for all activations.
constexpr StaticRounding static_rounding(float scale) { return {.scale = scale, .zero = 128, .least = 1, .most = 255}; }

// The product that `product` describes, with the weight as second operand: a W^T with trans_b, otherwise a W, which
// kInt8 lacks. No format has trans_a.
struct QuantizedMatmulAttrs {
  QuantizedAttrs weight = {};
  MatmulAttrs product = {.trans_b = true};
  StaticRounding rounding = {};  // of a, with kInt8; scale 0: by rows
  // With kInt8 and a scale above 0 the result is u8: codes by this rounding. So is a if its type says so, by
  // `rounding`, which then has a scale.
  StaticRounding result_rounding = {};
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("product", product), visit("rounding", rounding);
    visit("result_rounding", result_rounding);
  }
};

// a W^T with only bias, activation and accumulator, as in inference: it alone has codes and kernels of few rows.
bool is_plain_product(const MatmulAttrs& product);
// Whether there is a kernel for such a product with a weight in `format`.
bool has_quantized_product(WeightFormat format, const MatmulAttrs& product);

extern const OpDef kDequantize, kQuantizedEmbedding, kQuantizedMatmul, kRoundActivations;

// Fails if a packed weight has another type than `attrs` says.
void expect_packed(const TensorType& packed, const QuantizedAttrs& attrs);

// As panels_of() and kPanelMatmul of ops/matmul/matmul.h, for bf16 weights if products multiply in bf16.
std::optional<PanelsOf> quantized_panels_of(const KernelQuery& query);
extern const Kernel kPanelQuantizedMatmul;

// packed: u8 [PackedShape::bytes()].
Tensor dequantize(At packed, const PackedShape& shape, DType dtype = DType::kF32, float input_scale = 0);
Tensor round_activations(At a, const StaticRounding& rounding);
Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape);

// Weights trained in fp32 and multiplied in int8: rounded and packed in each step (quantize_weight() of
// packed_weight.h). w [rows, columns], or [columns, rows] if `transposed` -> u8 [PackedShape::bytes()] of kInt8. The
// pass quantize_products puts it before products, after gradients are taken.
struct QuantizeWeightAttrs {
  QuantizedAttrs weight = {};
  bool transposed = false;
  void fields(FieldVisitor& visit) { visit("weight", weight), visit("transposed", transposed); }
};

extern const OpDef kQuantizeWeight;

// Convolution, without groups, of images rounded to bytes with filters of WeightFormat::kInt8:
//
//   sum[n, i, j, o] = sum over r, s, c of round(x[n, i * stride + r * dilation - before, ..., c]) * w[o, (r, s, c)]
//   y               = relu(sum * scale + bias + residual),  each part of it where the attributes say so
//  x [N, H, W, C], packed u8 with filters as rows [O, R * S * C], scale and bias f32 [O], residual of y's shape -> y
// [N, H', W', O]. round() is a StaticRounding; without a scale it finds one for each image
// (kernels/quantized/products.h). x, residual and y are floats, or u8: the codes of a rounding with a scale.
// Filter, steps and padding may differ between axes and ends. For inference on CPUs: ONNX's quantized networks use it,
// and the pass fuse_int8_convolution makes it of convolutions with quantized filters, and passes codes between them.

struct QuantizedConv2dAttrs {
  QuantizedAttrs weight = {};
  StaticRounding rounding = {};
  WindowAxis vertical = {}, horizontal = {};
  // The operands follow x and the weight in this order.
  bool scale = false, bias = false, residual = false, relu = false;
  // With a scale above 0 the residual, or y, is u8. x is if its type says so.
  StaticRounding residual_rounding = {}, result_rounding = {};
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("rounding", rounding), visit("vertical", vertical), visit("horizontal", horizontal);
    visit("scale", scale), visit("bias", bias), visit("residual", residual), visit("relu", relu);
    visit("residual_rounding", residual_rounding), visit("result_rounding", result_rounding);
  }
  Int8ConvolutionSizes sizes(const Shape& x) const { return {x[0], x[1], x[2], x[3], vertical, horizontal}; }
  size_t scale_at() const { return 2; }
  size_t bias_at() const { return 2 + scale; }
  size_t residual_at() const { return 2 + scale + bias; }
};

extern const OpDef kQuantizedConv2d;

Tensor quantized_conv2d(At x, Tensor packed, const PackedShape& shape, const StaticRounding& rounding,
    const WindowAxis& vertical, const WindowAxis& horizontal);

// Weights trained and stored in bf16: the update computes in fp32, and this op rounds its result.
//
//   round_bf16(x, random) = x rounded stochastically (engine/kernels/stored_floats.h), packed
//
// x f32 [elements of the weight], random i32 [4] as of ops/dropout -> u8 [PackedShape::bytes()] of WeightFormat::kBf16.

struct RoundBf16Attrs {
  QuantizedAttrs weight = {.format = WeightFormat::kBf16};
  uint64_t site = 0;  // as of dropout_key(): each weight has random numbers of its own
  void fields(FieldVisitor& visit) { visit("weight", weight), visit("site", site); }
};

extern const OpDef kRoundBf16;

Tensor round_bf16(At x, Tensor random, const PackedShape& shape, uint64_t site);

// Simulates static int8 of activations and weights in floats, to train with the rounding errors of the later model.
//
//   fake_quantize(x, step) = s * clamp(round(x / s), -127, 127), ties to even, s = step[0]; step: [1]
//   round_weight(w)        = each row as WeightFormat::kInt8 rounds it (engine/kernels/quantized/packed_weight.h)
//
// The values equal those of products with static_rounding(s) and packed weights. Rounding has no useful derivative; its
// gradient is passed straight through:
//
//   dx = dy where |x / s| <= 127, else 0
//   ds = sum of dy * (round(x / s) - x / s where |x / s| <= 127, else 127 or -127) / sqrt(127 * x.dim(-1))
//   dw = dy
//
// ds is that of learned step size quantization (Esser et al. 2020, arXiv 1902.08153, equations 2 to 4). A step below
// kLeastStep counts as kLeastStep. CPU only.
constexpr float kLeastStep = 1e-8F;

extern const OpDef kFakeQuantize, kFakeQuantizeGrad, kRoundWeight;

Tensor fake_quantize(At x, Tensor step);
Tensor round_weight(At w);  // w: [rows, columns]
}  // namespace linnet

// Weights of 16, 8 or 4 bits in a graph (engine/kernels/quantized/packed_weight.h): what they stand for, and the ops
// that read them as they are.
//
//   dequantize(packed) = W, the numbers that the packed bytes stand for     [rows, columns]
//   quantized_embedding(packed, ids) = rows of W                            [..., columns]
//   quantized_matmul(a, packed, ...) = matmul(round(a), W, ...)             with all that a matmul may have besides
//   round_activations(a) = a as a StaticRounding (engine/kernels/quantized/gemm_int8.h) rounds it, in floats again
//
// For WeightFormat::kInt8, round() rounds each row of a to 8 bits, so that the product adds up integers; after
// round_activations its rounding takes the place of that. For the others
// it is the identity; with few rows the kernel for blocks rounds to 16 bits (engine/kernels/quantized/gemm_int8.h).
//
// Model code knows none of them: a Trace gives a quantized parameter as a dequantize node, and the pass fuse_quantized
// joins that with the products and lookups that read it. A packed weight is never trained: gradients are taken of the
// products with W, before that pass.
#pragma once
#include <algorithm>
#include <cmath>

#include "engine/ir/graph.h"
#include "engine/kernels/quantized/gemm_int8.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/ops/kernel.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {

struct QuantizedAttrs {
  WeightFormat format = WeightFormat::kInt8;
  TensorType weight = {};  // what the packed bytes stand for: f32 [rows, columns]; f64 in the reference
  float input_scale = 0;   // of kInt8: products round their other operand by it (static_rounding()); 0: row by row
  void fields(FieldVisitor& visit) {
    visit("format", format), visit("weight", weight), visit("input_scale", input_scale);
  }
  PackedShape packed() const { return {format, weight.shape[0], weight.shape[1]}; }
};

struct RoundingAttrs {
  float scale = 0;
  int zero = 128, least = 0, most = 255;
  bool any_weight = false;
  void fields(FieldVisitor& visit) {
    visit("scale", scale), visit("zero", zero), visit("least", least), visit("most", most);
    visit("any_weight", any_weight);
  }
  bool operator==(const RoundingAttrs&) const = default;
  StaticRounding rounding() const { return {scale, zero, least, most, any_weight}; }
  template <class T>
  uint8_t code(T x) const {
    const double whole = std::nearbyint(static_cast<float>(x) / scale) + zero;
    return static_cast<uint8_t>(whole > least ? std::min<double>(whole, most) : least);
  }
  // The number that x is rounded to: of its code, in floats again.
  template <class T>
  T rounded(T x) const {
    return static_cast<T>(static_cast<float>(code(x) - zero) * scale);
  }
};
RoundingAttrs rounding_attrs(const StaticRounding& rounding);

// Codes of -127..127 with 128 added, by one scale for all activations.
constexpr StaticRounding static_rounding(float scale) { return {.scale = scale, .zero = 128, .least = 1, .most = 255}; }

// The product that `product` describes, with the weight as its second operand: a W^T with trans_b, otherwise a W. kInt8
// has plain products alone; the other formats have all but trans_a.
struct QuantizedMatmulAttrs {
  QuantizedAttrs weight = {};
  MatmulAttrs product = {.trans_b = true};
  RoundingAttrs rounding = {};  // of a, with kInt8; scale 0: by rows
  // With kInt8 and a scale above 0 the result is u8: codes by this rounding. So is a if its type says so, by
  // `rounding`, which then has a scale.
  RoundingAttrs result_rounding = {};
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("product", product), visit("rounding", rounding);
    visit("result_rounding", result_rounding);
  }
};

// a W^T with nothing but bias, activation and accumulator, as inference has it.
bool is_plain_product(const MatmulAttrs& product);
// Whether there is a kernel for such a product with a weight in `format`.
bool has_quantized_product(WeightFormat format, const MatmulAttrs& product);

extern const OpDef kDequantize, kQuantizedEmbedding, kQuantizedMatmul, kRoundActivations;

// Of an operand that is a packed weight: fails if it has another type than `attrs` says.
void expect_packed(const TensorType& packed, const QuantizedAttrs& attrs);

// packed: u8 [PackedShape::bytes()].
Tensor dequantize(At packed, const PackedShape& shape, DType dtype = DType::kF32, float input_scale = 0);
Tensor round_activations(At a, const StaticRounding& rounding);
Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape);

}  // namespace linnet

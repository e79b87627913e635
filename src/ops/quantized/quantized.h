// Weights of 16, 8 or 4 bits in a graph (kernels/quantized/packed_weight.h): what they stand for, and the ops that read
// them as they are.
//
//   dequantize(packed) = W, the numbers that the packed bytes stand for     [rows, columns]
//   quantized_embedding(packed, ids) = rows of W                            [..., columns]
//   quantized_matmul(a, packed, ...) = matmul(round(a), W, ...)             with all that a matmul may have besides
//
// For WeightFormat::kInt8, round() rounds each row of a to 8 bits, so that the product adds up integers. For the others
// it is the identity; with few rows the kernel for blocks rounds to 16 bits (kernels/quantized/gemm_int8.h).
//
// Model code knows none of them: a Trace gives a quantized parameter as a dequantize node, and the pass fuse_quantized
// joins that with the products and lookups that read it. A packed weight is never trained: gradients are taken of the
// products with W, before that pass.
#pragma once
#include "ir/graph.h"
#include "kernels/quantized/packed_weight.h"
#include "ops/kernel.h"
#include "ops/matmul/matmul.h"

namespace linnet {

struct QuantizedAttrs {
  WeightFormat format = WeightFormat::kInt8;
  TensorType weight = {};  // what the packed bytes stand for: f32 [rows, columns]; f64 in the reference
  void fields(FieldVisitor& visit) { visit("format", format), visit("weight", weight); }
  PackedShape packed() const { return {format, weight.shape[0], weight.shape[1]}; }
};

// The product that `product` describes, with the weight as its second operand: a W^T with trans_b, otherwise a W. kInt8
// has plain products alone; the other formats have all but trans_a.
struct QuantizedMatmulAttrs {
  QuantizedAttrs weight = {};
  MatmulAttrs product = {.trans_b = true};
  void fields(FieldVisitor& visit) { visit("weight", weight), visit("product", product); }
};

// a W^T with nothing but bias, activation and accumulator, as inference has it.
bool is_plain_product(const MatmulAttrs& product);
// Whether there is a kernel for such a product with a weight in `format`.
bool has_quantized_product(WeightFormat format, const MatmulAttrs& product);

extern const OpDef kDequantize, kQuantizedEmbedding, kQuantizedMatmul;
KernelList dequantize_kernels();
KernelList quantized_embedding_kernels();
KernelList quantized_matmul_kernels();

// Of an operand that is a packed weight: fails if it has another type than `attrs` says.
void expect_packed(const TensorType& packed, const QuantizedAttrs& attrs);

// packed: u8 [PackedShape::bytes()].
Tensor dequantize(At packed, const PackedShape& shape, DType dtype = DType::kF32);
Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape);

}  // namespace linnet

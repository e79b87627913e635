// Weights of 8 or 4 bits in a graph (kernels/quantized/packed_weight.h): what they stand for, and the ops that read
// them as they are.
//
//   dequantize(packed) = codes * scales                                  [rows, columns]
//   quantized_embedding(packed, ids) = rows of dequantize(packed)        [..., columns]
//   quantized_matmul(a, packed, ...) = activation(round(a) dequantize(packed)^T [+ bias] [+ accumulator])  [..., rows]
//
// For WeightFormat::kInt8, round() rounds each row of a to 8 bits, so that the product adds up integers. For the block
// formats it is the identity; with few rows the kernel rounds to 16 bits (kernels/quantized/gemm_int8.h).
//
// Model code knows none of them: a Trace gives a quantized parameter as a dequantize node, and the pass fuse_quantized
// joins that with the products and lookups that read it. Nothing is differentiated through them.
#pragma once
#include "ir/graph.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quantized/packed_weight.h"
#include "ops/kernel.h"

namespace linnet {

struct QuantizedAttrs {
  WeightFormat format = WeightFormat::kInt8;
  TensorType weight = {};  // what the packed bytes stand for: f32 [rows, columns]; f64 in the reference
  void fields(FieldVisitor& visit) { visit("format", format), visit("weight", weight); }
  PackedShape packed() const { return {format, weight.shape[0], weight.shape[1]}; }
};

// Operands in order: a, packed, then those there are of bias [rows] and accumulator, which has the shape of the result.
struct QuantizedMatmulAttrs {
  QuantizedAttrs weight = {};
  bool bias = false;
  GemmActivation activation = GemmActivation::kNone;
  bool accumulate = false;
  bool independent_rows = false;  // see GemmArgs; WeightFormat::kInt8 always has them
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("bias", bias), visit("activation", activation), visit("accumulate", accumulate);
    visit("independent_rows", independent_rows);
  }
};

extern const OpDef kDequantize, kQuantizedEmbedding, kQuantizedMatmul;
KernelList dequantize_kernels();
KernelList quantized_embedding_kernels();
KernelList quantized_matmul_kernels();

// packed: u8 [PackedShape::bytes()].
Tensor dequantize(At packed, const PackedShape& shape, DType dtype = DType::kF32);
Tensor quantized_matmul(At a, Tensor packed, const PackedShape& shape);

}  // namespace linnet

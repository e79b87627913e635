// What lowerings of several ops write alike.
#pragma once
#include "onnx/lowering/lowering.h"

namespace linnet {

// The node x weight^T, with a parameter as weight, that made a value; null: another node did.
const Node* linear_product(const OnnxLowering& to, ValueId value);

// The ONNX value of product + bias, of shape `result`: `product` is one of those nodes.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result);

// The ONNX value of rows [B, T, H * D], as a sequence's states are here, as [B, H, T, D]: ONNX's usual form, also of
// keys and values that a decoder keeps. Rows that were made from that form, or joined along T from such, go back to it
// without a detour.
std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads);

}  // namespace linnet

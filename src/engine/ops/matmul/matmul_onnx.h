// Linear layers, as lowerings to ONNX recognize and write them.
#pragma once
#include "formats/onnx/lowering.h"

namespace linnet {

// The node x weight^T, with a parameter as weight, that made a value; null: another node did.
const Node* linear_product(const OnnxLowering& to, ValueId value);

// The ONNX value of product + bias, of shape `result`: `product` is one of those nodes.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result);

}  // namespace linnet

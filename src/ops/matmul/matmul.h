// Matrix product, plain or batched, with an optional epilogue.
//
//   out = [relu](op(a) op(b) [+ bias]) [+ accumulator]
//
// a [..., M, K], b [K, N]: the leading axes of a are rows too. Linear weights are [N, K], used with trans_b.
// a [..., M, K], b [..., K, N] with equal leading axes: independent products.
// trans_a: a is stored [..., K, M]; trans_b: b is stored [..., N, K]. bias [N].
#pragma once
#include "ir/graph.h"
#include "kernels/precision.h"
#include "ops/kernel.h"

namespace linnet {

struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  // Set by the fuse pass, never by model code: gradients are taken of the plain product.
  bool bias = false, relu = false, accumulate = false;
  // Set by the lower_precision pass. In float64 (the reference) it means nothing.
  Precision precision = Precision::kF32;
  std::string text() const;
};

extern const OpDef kMatmul;
KernelList matmul_kernels();

Tensor matmul(At a, Tensor b, bool trans_a = false, bool trans_b = false);

}  // namespace linnet

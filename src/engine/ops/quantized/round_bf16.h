// Weights that are trained and stored in bf16: the update computes in fp32, and this op rounds its result.
//
//   round_bf16(x, random) = x rounded stochastically (engine/kernels/quantized/round_bf16.h), packed
//
// x f32 [elements of the weight], random i32 [4] as of ops/dropout -> u8 [PackedShape::bytes()] of WeightFormat::kBf16.
#pragma once
#include "engine/ops/quantized/quantized.h"

namespace linnet {

struct RoundBf16Attrs {
  QuantizedAttrs weight = {.format = WeightFormat::kBf16};
  uint64_t site = 0;  // as of dropout_key(): each weight has random numbers of its own
  void fields(FieldVisitor& visit) { visit("weight", weight), visit("site", site); }
};

extern const OpDef kRoundBf16;

Tensor round_bf16(At x, Tensor random, const PackedShape& shape, uint64_t site);

}  // namespace linnet

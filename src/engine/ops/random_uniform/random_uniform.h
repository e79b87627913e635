// Numbers that are uniform in [0, 1), drawn anew in each step: a function of (seed, step, micro-step, site, element)
// alone, as dropout's masks are, so that the backward pass, a recomputation and any device draw the same ones.
//
//   element i = (word i % 4 of Philox block {i / 4, kUniformDraw, i / 2^34, 0} >> 8) / 2^24
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

constexpr uint32_t kUniformDraw = 0xA11;

struct RandomUniformAttrs {
  TensorType type = {};  // of the result, a float type
  uint64_t site = 0;     // as of dropout: dropout_site()
  void fields(FieldVisitor& visit) { visit("type", type), visit("site", site); }
};

extern const OpDef kRandomUniform;

// random i32 [4] = {seed low, seed high, step, micro-step}. There is no gradient.
Tensor random_uniform(At random, const TensorType& type, uint64_t site);

}  // namespace linnet

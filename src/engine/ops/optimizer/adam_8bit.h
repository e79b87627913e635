// A step of Adam or AdamW whose moments are kept in 8 bits: see engine/kernels/optimizer_8bit.h for the codes.
//
//   parameters [P], codes1 u8 [P], scales1 [blocks], codes2 u8 [P], scales2 [blocks], [ema [P]], gradient [P],
//   sum of squares, count, control [2]  ->  the new states, parameters to ema
//
// blocks = ceil(P / 256): blocks are cut through the flat buffer, so that a block may hold the ends of two tensors or
// several small ones. Of OptimizerAttrs, kind is kAdam8bit; the rest is as for kAdam.
#pragma once
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {

extern const OpDef kAdam8bitStep;

struct Adam8bitState {
  Tensor parameters, codes1, scales1, codes2, scales2, ema;  // ema when ema_decay > 0
};

// The types of codes and scales for a buffer of `count` parameters.
TensorType moment_codes_type(int64_t count);
TensorType moment_scales_type(int64_t count, DType dtype);

// Returns the new state.
Adam8bitState adam_8bit_step(const Adam8bitState& state, At gradient, Tensor sum_of_squares, Tensor count,
                             Tensor control, const OptimizerAttrs& attrs);

}  // namespace linnet

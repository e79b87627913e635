// Heads of attention in ONNX. Here a sequence's states are rows [B, T, H * D]; ONNX's usual form, also of keys and
// values that a decoder keeps, is [B, H, T, D].
#pragma once
#include "formats/onnx/lowering.h"

namespace linnet {

// The ONNX value of rows [B, T, H * D] as [B, H, T, D]. Rows that were made from that form, or joined along T from
// such, go back to it without a detour.
std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads);

}  // namespace linnet

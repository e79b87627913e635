#pragma once
#include "formats/onnx/lowering.h"
#include "engine/ops/pixels/pixels.h"

namespace linnet {

// Bytes [..., C] as scaled floats.
std::string scaled_pixels_in_onnx(OnnxLowering& to, const std::string& bytes, const PixelScaling& scaling);

}  // namespace linnet

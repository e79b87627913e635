// Bytes of images as numbers: y = x * scale[c] + shift[c] for the last axis c. x u8 [..., C] -> float [..., C].
#pragma once
#include <vector>
#include "engine/ops/kernel.h"

namespace linnet {
struct PixelScaling {  // by channel
  std::vector<float> scale, shift;
  bool operator==(const PixelScaling&) const = default;
  void fields(FieldVisitor& visit) { visit("scale", scale), visit("shift", shift); }
};

// (x / 255 - mean[c]) / deviation[c]; empty lists: mean 0 and deviation 1 in each of `channels`. User error if a list
// has another length or a deviation is not positive.
PixelScaling pixel_scaling(
    int64_t channels, const std::vector<double>& mean = {}, const std::vector<double>& deviation = {});

struct ScalePixelsAttrs {
  PixelScaling scaling = {};
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("scaling", scaling), visit("dtype", dtype); }
};

extern const OpDef kScalePixels;

Tensor scale_pixels(At x, PixelScaling scaling, DType dtype = DType::kF32);
}  // namespace linnet

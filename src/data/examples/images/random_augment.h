// RandAugment (Cubuk et al. 2020): a number of changes drawn from fourteen, all of one strength. Ranges are
// torchvision's.
#pragma once
#include <cstdint>
#include <span>

namespace linnet {

constexpr int kMostStrength = 30;

// What a change is drawn from, in torchvision's order.
enum class ImageChange {
  kNone,
  kShearAcross,
  kShearDown,
  kShiftAcross,
  kShiftDown,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
constexpr int kImageChanges = 14;

// Changes an image [height, width, channels] of 1 or 3 channels where it lies. `strength` from 0 to kMostStrength;
// `negative`: the other way, of changes that have two. `fill`: a pixel that stands beyond the image; empty: zeros.
void change_image(ImageChange change, int strength, bool negative, int64_t height, int64_t width, int64_t channels,
                  std::span<const uint8_t> fill, std::span<uint8_t> pixels);

}  // namespace linnet

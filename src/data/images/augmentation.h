// Random changes of training images: shifts, mirror images and holes. What happens to an image is a function of (seed,
// epoch, image), so that a run that is resumed sees the same bytes, whatever the number of threads or batches.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/images/image_dataset.h"

namespace linnet {

struct Augmentation {
  int64_t shift = 0;               // at most so many pixels up or down and to either side
  bool mirror = false;             // left and right are exchanged, for every second image
  int64_t cutout = 0;              // side of a square that is covered (DeVries & Taylor 2017); its center is anywhere
  std::vector<uint8_t> fill = {};  // a pixel: what stands beyond the image and in the square; empty: zeros

  bool any() const { return shift > 0 || mirror || cutout > 0; }
};

// Writes the changed image of `height` x `width` pixels of `channels` bytes to `out`.
void augment_image(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of,
                   std::span<uint8_t> out);

}  // namespace linnet

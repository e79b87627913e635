#include "data/images/augmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/images/image_batches.h"

namespace linnet {
namespace {

// Two channels; every byte of an image is different.
ImageDataset made_images(int64_t count) {
  ImageDataset images{.count = count, .height = 6, .width = 8, .channels = 2};
  images.pixels.resize(static_cast<size_t>(count * images.image_bytes()));
  for (size_t i = 0; i < images.pixels.size(); ++i)
    images.pixels[i] = static_cast<uint8_t>(i % static_cast<size_t>(images.image_bytes()) + 100);
  images.labels.resize(static_cast<size_t>(count));
  std::iota(images.labels.begin(), images.labels.end(), 0);
  images.class_names = {"a", "b"};
  return images;
}

std::vector<uint8_t> augmented(const Augmentation& how, int64_t epoch, int64_t image, const ImageDataset& of) {
  std::vector<uint8_t> out(static_cast<size_t>(of.image_bytes()));
  augment_image(how, 7, epoch, image, of, out);
  return out;
}

TEST(Augmentation, ShiftsAndMirrorsMovePixelsAndFillTheRest) {
  const ImageDataset images = made_images(40);
  const Augmentation how{.shift = 2, .mirror = true, .fill = {3, 4}};
  std::set<std::vector<uint8_t>> seen;
  for (int64_t image = 0; image < images.count; ++image) {
    const std::vector<uint8_t> out = augmented(how, 0, image, images);
    seen.insert(out);
    bool found = false;
    for (int64_t down = -2; down <= 2; ++down)
      for (int64_t right = -2; right <= 2; ++right)
        for (const bool mirror : {false, true}) {
          std::vector<uint8_t> expected;
          for (int64_t i = 0; i < 6; ++i)
            for (int64_t j = 0; j < 8; ++j)
              for (int64_t c = 0; c < 2; ++c) {
                const int64_t row = i - down, column = (mirror ? 7 - j : j) - right;
                const bool inside = row >= 0 && row < 6 && column >= 0 && column < 8;
                expected.push_back(static_cast<uint8_t>(inside ? (row * 8 + column) * 2 + c + 100 : 3 + c));
              }
          found = found || out == expected;
        }
    EXPECT_TRUE(found) << image;
  }
  EXPECT_GT(seen.size(), 15u);  // of 50 ways
}

TEST(Augmentation, ASquareIsCovered) {
  const ImageDataset images = made_images(1);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<uint8_t> out = augmented({.cutout = 3}, epoch, 0, images);
    const auto covered = std::ranges::count(out, 0) / 2;
    EXPECT_GE(covered, 2 * 2);  // the center is inside the image
    EXPECT_LE(covered, 3 * 3);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(out[i] == 0 || out[i] == images.pixels[i]);
  }
}

// A run that stopped within an epoch goes on with the bytes it would have seen.
TEST(Augmentation, AResumedEpochHasTheSameBytes) {
  const ImageDataset images = made_images(10);
  const Augmentation how{.shift = 2, .mirror = true, .cutout = 2};
  ImageBatches whole(images, 4, 5, how), resumed(images, 4, 5, how);
  const auto bytes = [](const Batch& batch) {
    const auto* begin = reinterpret_cast<const uint8_t*>(batch.arrays[0].bytes.data());
    return std::vector<uint8_t>(begin, begin + batch.arrays[0].bytes.size());
  };
  std::vector<std::vector<uint8_t>> expected;
  for (int i = 0; i < 7; ++i) expected.push_back(bytes(whole.next()));
  resumed.seek(1, 1);
  for (size_t i = 4; i < 7; ++i) EXPECT_EQ(bytes(resumed.next()), expected[i]) << i;
  EXPECT_NE(expected[0], expected[3]);
}

}  // namespace
}  // namespace linnet
